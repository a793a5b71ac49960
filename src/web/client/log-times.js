// When the lines of a log came: how long each part of the work took, and on demand the time beside every line.

const PAUSE_MS = 1_000;
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium', hourCycle: 'h23' });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

export function createTimes(base, container, lines) {
  let isShown = false;
  let pause;
  let isPausing = false;
  let timedParts = 0;
  let size = 0;
  let finishedAt;
  /** Ends of writes and their times, as far as they are known. */
  let known = [];

  const ask = async query => {
    const response = await fetch(`${base}/times?${query}`).catch(() => undefined);
    return response?.ok ? (await response.json()).times : [];
  };

  /** A part has taken the time until the next one began. */
  async function timeParts() {
    const { folds, starts } = lines;
    if (folds.length === 0 || (timedParts === folds.length && finishedAt === undefined)) return;
    timedParts = folds.length;
    const began = await ask(
      `at=${[...folds.map(({ line }) => starts[line]), Math.max(0, size - 1)].join(',')}`,
    );
    const lastAt = began.pop();
    for (const [at, { head }] of folds.entries()) {
      const end = began[at + 1] ?? (finishedAt === undefined ? undefined : finishedAt || lastAt);
      if (began[at] && end) showDuration(head, durationWords(Math.max(0, end - began[at])));
    }
  }
  function showDuration(head, words) {
    const took = head.querySelector('.took') ?? document.createElement('span');
    took.className = 'took';
    took.textContent = words;
    head.append(took);
  }

  /** The time of a line beside its number, where it is known. */
  function timeNumber(link, line) {
    const start = lines.starts[line];
    let low = 0;
    for (let high = known.length; low < high; ) {
      const middle = (low + high) >>> 1;
      if (known[middle][0] <= start) low = middle + 1;
      else high = middle;
    }
    if (!known[low]) return;
    link.dataset.at = clock.format(known[low][1]);
    link.title = whole.format(known[low][1]);
  }
  async function timeRows() {
    if (!isShown) return;
    known.push(...(await ask(`from=${known.at(-1)?.[0] ?? 0}`)));
    for (const link of container.querySelectorAll('.n:not([data-at])'))
      timeNumber(link, Number(link.hash.slice(2)) - 1);
  }

  return {
    durationWords,
    timeNumber,
    toggle(isOn) {
      isShown = isOn;
      container.classList.toggle('timed', isOn);
      timeRows();
    },
    /** Another log takes the place of this one. */
    startOver() {
      known = [];
      timedParts = 0;
      finishedAt = undefined;
    },
    /** More has come: asked for after a while, and not for each line. */
    grow(sizeBytes) {
      size = sizeBytes;
      if (isPausing) return;
      isPausing = true;
      pause = setTimeout(() => {
        isPausing = false;
        timeParts();
        timeRows();
      }, PAUSE_MS);
    },
    /** NaN where only the log says when the end was. */
    finish(atMs) {
      clearTimeout(pause);
      isPausing = false;
      finishedAt = atMs;
      timeParts();
      timeRows();
    },
  };
}

function durationWords(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${ms < 10_000 ? (ms / 1000).toFixed(1) : seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}
