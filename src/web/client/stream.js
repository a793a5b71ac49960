// What a page does when the server closes a stream of it: a browser takes up only those that break off.

export const RETRY_MS = 5_000;

/** Closed because of trouble that passes, such as a proxy's: goes on after a while. Or since nobody is to read it here. */
export async function takeUpAgain(goOn, page, { onTrouble, onEnd } = {}) {
  const response = await fetch(page).catch(() => undefined);
  if (response?.redirected || response?.status === 403 || response?.status === 404) return onEnd?.();
  onTrouble?.();
  setTimeout(goOn, RETRY_MS);
}
