// When the lines of a log were written: how long each phase took, and on demand the time beside every line.

/** @import { Lines, WriteTime } from './types.ts' */
import { listElements } from './dom.js';
import { dateFormat } from './zone.js';

const PAUSE_MS = 1_000;
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
  let timedFolds = 0;
  let size = 0;
  /** @type {number | undefined} */
  let finishedAt;
  /** @type {WriteTime[]} */
  let known = [];

  /** @param {string} query */
  async function load(query) {
    const response = await fetch(`${base}/times?${query}`).catch(() => undefined);
    return response?.ok ? (await response.json()).times : [];
  }

  /** A phase lasts until the next one begins. */
  async function timeFolds() {
    const { folds, starts } = lines;
    if (folds.length === 0 || (timedFolds === folds.length && finishedAt === undefined)) return;
    timedFolds = folds.length;
    const offsets = [...folds.map(({ line }) => starts[line]), Math.max(0, size - 1)];
    /** @type {(number | null)[]} */
    const beganAt = await load(`at=${offsets.join(',')}`);
    const lastAt = beganAt.pop();
    for (const [at, { head }] of folds.entries()) {
      const start = beganAt[at];
      const end = beganAt[at + 1] ?? (finishedAt === undefined ? undefined : finishedAt || lastAt);
      if (start && end) showDuration(head, formatDuration(Math.max(0, end - start)));
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
    link.title = dateAndClock.format(write[1]);
  }
  async function timeRows() {
    if (!isShown) return;
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
      timedFolds = 0;
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

/** @param {number} ms */
export function formatDuration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${ms < 10_000 ? (ms / 1000).toFixed(1) : seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}
