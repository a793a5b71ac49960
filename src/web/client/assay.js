// What every page gains from scripts: relative times that stay current, copy buttons, filters, a confirmation before
// something is lost, keyboard shortcuts and the quick switcher. Every page works without it.

import './confirm.js';
import './copy.js';
import './filter.js';
import './shortcuts.js';
import './switcher.js';

/** @type {[unit: Intl.RelativeTimeFormatUnit, ms: number][]} */
const units = [
  ['year', 365 * 86_400_000],
  ['month', 30 * 86_400_000],
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });

/** @param {number} ms */
function formatRelative(ms) {
  const distance = ms - Date.now();
  for (const [unit, size] of units)
    if (Math.abs(distance) >= size) return relative.format(Math.trunc(distance / size), unit);
  return 'just now';
}

function updateTimes() {
  for (const time of document.querySelectorAll('time')) {
    if (time.dateTime === '') continue;
    const words = formatRelative(Date.parse(time.dateTime));
    if (time.textContent !== words) time.textContent = words;
  }
}
setInterval(updateTimes, 20_000);
updateTimes();
