// When the lines of a log were written: how long each phase took, and on demand the time beside every line.

/** @import { Fold, Lines, WriteTime } from './types.ts' */
import { listElements } from './dom.js';
import { dateFormat } from './zone.js';

const PAUSE_MS = 1_000;
/** Two times each: the server answers 200 in one request. */
const FOLDS_PER_REQUEST = 100;
const clock = dateFormat(undefined, { timeStyle: 'medium', hourCycle: 'h23' });
const dateAndClock = dateFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/**
 * @param {string} base
 * @param {HTMLElement} container
 * @param {Pick<Lines, 'folds' | 'starts'>} lines
 */
export function createTimes(base, container, lines) {
  let isShown = false;
  /** @type {number | undefined} */
  let timer;
  /** @type {WeakSet<Fold>} */
  const timed = new WeakSet();
  let size = 0;
  /** @type {number | undefined} */
  let finishedAt;
  /** @type {WriteTime[]} */
  let known = [];
  /**
   * When the first line was written.
   * @type {number | undefined}
   */
  let startedAt;

  /** @param {string} query */
  async function load(query) {
    const response = await fetch(`${base}/times?${query}`).catch(() => undefined);
    return response?.ok ? (await response.json()).times : [];
  }

  /** A fold lasts until its end was printed, or the next one began. */
  async function timeFolds() {
    const { folds, starts } = lines;
    const due = folds.filter(
      fold => !timed.has(fold) && (fold.endLine !== undefined || finishedAt !== undefined),
    );
    for (const fold of due) timed.add(fold);
    for (let from = 0; from < due.length; from += FOLDS_PER_REQUEST) {
      const batch = due.slice(from, from + FOLDS_PER_REQUEST);
      const offsets = batch.flatMap(({ line, endLine }) => [
        starts[line],
        endLine === undefined ? Math.max(0, size - 1) : starts[endLine],
      ]);
      /** @type {(number | null)[]} */
      const at = await load(`at=${offsets.join(',')}`);
      for (const [index, { head, endLine }] of batch.entries()) {
        const start = at[2 * index];
        const end = (endLine === undefined && finishedAt) || at[2 * index + 1];
        if (start && end) showDuration(head, formatDuration(Math.max(0, end - start)));
      }
    }
  }
  /**
   * @param {HTMLElement} head
   * @param {string} words
   */
  function showDuration(head, words) {
    const took = head.querySelector('.took') ?? document.createElement('span');
    took.className = 'took';
    took.textContent = words;
    head.append(took);
  }

  /**
   * Adds the time of a line to its number, where it is known.
   * @param {HTMLElement} link
   * @param {number} line
   */
  function timeNumber(link, line) {
    const start = lines.starts[line] ?? 0;
    let low = 0;
    for (let high = known.length; low < high; ) {
      const middle = (low + high) >>> 1;
      if ((known[middle]?.[0] ?? 0) <= start) low = middle + 1;
      else high = middle;
    }
    const write = known[low];
    if (!write) return;
    link.dataset.at = clock.format(write[1]);
    link.dataset.since = formatSince(write[1] - (startedAt ?? write[1]));
    link.title = dateAndClock.format(write[1]);
  }
  async function timeRows() {
    if (!isShown) return;
    startedAt ??= (await load('at=0'))[0] ?? undefined;
    known.push(...(await load(`from=${known.at(-1)?.[0] ?? 0}`)));
    for (const link of listElements(container, '.n:not([data-at])'))
      timeNumber(link, Number(link.getAttribute('href')?.slice(2)) - 1);
  }
  function timeAll() {
    clearTimeout(timer);
    timer = undefined;
    timeFolds();
    timeRows();
  }

  return {
    timeNumber,
    /** @param {boolean} isOn */
    toggle(isOn) {
      isShown = isOn;
      container.classList.toggle('timed', isOn);
      timeRows();
    },
    /** Another log replaces this one. */
    startOver() {
      known = [];
      startedAt = undefined;
      finishedAt = undefined;
    },
    /**
     * More was written: its times are loaded after a while, not for each line.
     * @param {number} sizeBytes
     */
    grow(sizeBytes) {
      size = sizeBytes;
      timer ??= setTimeout(timeAll, PAUSE_MS);
    },
    /**
     * @param {number} atMs NaN where only the log says when it ended.
     */
    finish(atMs) {
      finishedAt = atMs;
      timeAll();
    },
  };
}

/**
 * +1:05, or +2:03:04: the time since the first line.
 * @param {number} ms
 */
function formatSince(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const two = (/** @type {number} */ value) => String(value).padStart(2, '0');
  return hours > 0 ? `+${hours}:${two(minutes)}:${two(rest)}` : `+${minutes}:${two(rest)}`;
}

/** @param {number} ms */
export function formatDuration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${ms < 10_000 ? (ms / 1000).toFixed(1) : seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}
