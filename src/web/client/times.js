// Keeps relative times current and shows the exact time of each: as its title, and in a bubble where the time has the
// focus, which a tap and the Tab key give it.

import { dateFormat, exactStyle } from './zone.js';

const UPDATE_MS = 20_000;
/** Between a time and its bubble, and between the bubble and the edge of the window. */
const GAP_PX = 6;
/** @type {[unit: Intl.RelativeTimeFormatUnit, ms: number][]} */
const units = [
  ['year', 365 * 86_400_000],
  ['month', 30 * 86_400_000],
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });
const exact = dateFormat('en-GB', exactStyle);

/** @param {number} ms */
function formatRelative(ms) {
  const distance = ms - Date.now();
  for (const [unit, size] of units)
    if (Math.abs(distance) >= size) return relative.format(Math.trunc(distance / size), unit);
  return 'just now';
}

function updateTimes() {
  for (const time of document.querySelectorAll('time')) {
    const ms = Date.parse(time.dateTime);
    if (Number.isNaN(ms)) continue;
    const words = [formatRelative(ms), exact.format(ms)];
    const [text, title] = 'exact' in time.dataset ? words.reverse() : words;
    if (time.textContent !== text) time.textContent = text ?? '';
    if (time.title !== title) time.title = title ?? '';
  }
}

/** In the top layer, so that no frame cuts it off. */
const bubble = document.createElement('div');
bubble.className = 'exact-time';
bubble.popover = 'manual';
// The title of the time says the same.
bubble.ariaHidden = 'true';
/** The time whose bubble is shown. @type {HTMLTimeElement | undefined} */
let shown;

/** @param {EventTarget | null} target */
const timeAt = target => {
  const time = target instanceof Element ? target.closest('time[tabindex]') : null;
  return time instanceof HTMLTimeElement ? time : undefined;
};

/** @param {HTMLTimeElement} time */
function showBubble(time) {
  if (shown !== time) {
    if (!bubble.isConnected) document.body.append(bubble);
    shown = time;
    bubble.textContent = time.title;
    bubble.showPopover();
  }
  placeBubble();
}

/** Below the time, or above it where the window ends. */
function placeBubble() {
  if (!shown) return;
  if (!shown.isConnected) return hideBubble();
  const near = shown.getBoundingClientRect();
  const { width, height } = bubble.getBoundingClientRect();
  const left = Math.min(near.left, document.documentElement.clientWidth - width - GAP_PX);
  const below = near.bottom + GAP_PX;
  const top = below + height > innerHeight ? near.top - height - GAP_PX : below;
  bubble.style.left = `${Math.max(GAP_PX, left)}px`;
  bubble.style.top = `${top}px`;
}

function hideBubble() {
  if (!shown) return;
  shown = undefined;
  bubble.hidePopover();
}

document.addEventListener('focusin', ({ target }) => {
  const time = timeAt(target);
  if (time) showBubble(time);
});
document.addEventListener('focusout', ({ target }) => {
  if (target === shown) hideBubble();
});
// Not every browser focuses what was tapped, or takes the focus away by a tap beside it.
document.addEventListener('pointerup', ({ target }) => {
  const time = timeAt(target);
  if (time) showBubble(time);
});
document.addEventListener('pointerdown', ({ target }) => {
  if (timeAt(target) !== shown) hideBubble();
});
document.addEventListener('keydown', ({ key }) => {
  if (key === 'Escape') hideBubble();
});
addEventListener('scroll', placeBubble, { capture: true, passive: true });
addEventListener('resize', placeBubble);
document.addEventListener('assay:shown', () => {
  updateTimes();
  placeBubble();
});
setInterval(updateTimes, UPDATE_MS);
updateTimes();
