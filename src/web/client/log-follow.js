// Follows the end of a log while it grows. The reader always wins: following changes with what they press, turn or touch.
// A scroll event alone never switches it on, because it may arrive late and may be one that this module caused.

const NEAR_BOTTOM_PX = 24;
const BELOW_PX = 16;
const keysDown = ['PageDown', 'ArrowDown', 'End', ' '];
const keysUp = ['PageUp', 'ArrowUp', 'Home'];

/**
 * `onChange` is called when following is switched on or off.
 * @param {HTMLElement} container
 * @param {HTMLElement} button
 * @param {{ isGrowing: () => boolean, onChange: (isOn: boolean) => void }} options
 */
export function createFollow(container, button, { isGrowing, onChange }) {
  let isOn = false;
  let isSticking = false;
  /** Whether the reader may have scrolled down since this module moved the page, or since following was switched. */
  let mayGoDown = false;
  /** Whether the page may still be moving up after what the reader pressed or turned. Browsers scroll smoothly. */
  let isGlidingUp = false;
  let lastY = scrollY;

  /** @param {boolean} next */
  function set(next) {
    mayGoDown = false;
    isOn = next;
    button.setAttribute('aria-pressed', String(next));
    onChange(next);
  }
  /** How far the end of the log is below the visible part; there may be more on the page after it. */
  const distanceBelow = () => container.getBoundingClientRect().bottom - innerHeight;

  /** Moves the page to the end of the log, until the browser has laid out all that is visible there. */
  function goToEnd(isWanted = () => true) {
    isSticking = true;
    const move = () => {
      const below = distanceBelow() + BELOW_PX;
      const before = scrollY;
      if (isWanted() && below > 0) scrollBy({ top: below, behavior: 'instant' });
      isSticking = scrollY > before;
      if (!isSticking) return;
      // The scroll event comes later, and is not the reader's.
      lastY = scrollY;
      mayGoDown = false;
      // Wrapped lines that were not laid out before turn out taller than estimated.
      requestAnimationFrame(move);
    };
    requestAnimationFrame(move);
  }
  function stick() {
    if (isOn && !isSticking) goToEnd(() => isOn);
  }
  /** @param {'up' | 'down' | 'either'} direction */
  function noteInput(direction) {
    // Before the page has moved: otherwise a line that arrives in between would pull it back down.
    if (direction !== 'down' && isOn) set(false);
    mayGoDown = direction !== 'up';
    isGlidingUp = direction === 'up';
  }

  addEventListener(
    'scroll',
    () => {
      if (scrollY < lastY) {
        // The reader asked to follow while the page was still moving up.
        if (isGlidingUp) stick();
        // Not while the end is in sight, where a fold that closes scrolls, nor while the page is about to move, where
        // the browser makes space for the focus of “Follow”.
        else if (isOn && distanceBelow() > 0 && !isSticking) set(false);
      } else if (scrollY > lastY && mayGoDown && !isOn && isGrowing())
        if (distanceBelow() <= NEAR_BOTTOM_PX) set(true);
      lastY = scrollY;
    },
    { passive: true },
  );
  addEventListener('scrollend', () => {
    if (!isSticking) isGlidingUp = false;
  });
  addEventListener(
    'wheel',
    ({ deltaY, ctrlKey }) => {
      if (deltaY !== 0 && !ctrlKey) noteInput(deltaY < 0 ? 'up' : 'down');
    },
    { passive: true },
  );
  addEventListener('touchmove', () => noteInput('either'), { passive: true });
  addEventListener('pointerdown', ({ clientX }) => {
    // The scroll bar of the page is held.
    if (clientX >= document.documentElement.clientWidth) noteInput('either');
  });
  addEventListener('keydown', ({ key, shiftKey, target }) => {
    const element = target instanceof Element ? target : document.body;
    if (element.closest('input, textarea, select')) return;
    // There it presses or opens what has the focus.
    if (key === ' ' && element.closest('a, button, summary')) return;
    if (keysUp.includes(key) || (key === ' ' && shiftKey)) noteInput('up');
    else if (keysDown.includes(key)) noteInput('down');
  });
  // A link to a line was followed.
  addEventListener('hashchange', () => set(false));
  button.addEventListener('click', () => {
    set(!isOn);
    stick();
  });
  // What is above the log may grow too, and the window may shrink.
  const stay = () => {
    if (isGrowing()) stick();
  };
  new ResizeObserver(stay).observe(document.body);
  addEventListener('resize', stay);

  return { set, stick, goToEnd };
}
