// Reconnects a stream that the server closed. A browser reconnects by itself only where a connection breaks.

export const RETRY_MS = 5_000;
export const TIMEOUT_MS = 15_000;

/**
 * Reconnects after a while, unless the page is gone or the reader may no longer see it.
 * @param {() => void} reconnect
 * @param {string} page
 * @param {{ onTrouble?: () => void, onEnd?: () => void }} [handlers]
 */
export async function reconnectLater(reconnect, page, { onTrouble, onEnd } = {}) {
  const response = await fetch(page, { signal: AbortSignal.timeout(TIMEOUT_MS) }).catch(() => undefined);
  if (response?.redirected || response?.status === 403 || response?.status === 404) return onEnd?.();
  onTrouble?.();
  setTimeout(reconnect, RETRY_MS);
}
