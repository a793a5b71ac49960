// Classifies a receiver's response: the delivery is delivered, retried or failed. The store records it.

import { retryDelayMs } from './retry.ts';

export type AttemptResult = {
  state: 'pending' | 'delivered' | 'failed';
  attempts: number;
  responseStatus: number | null;
  responseMs: number | null;
  responseExcerpt: string | null;
  lastError: string | null;
  nextAttemptAt: number | null;
};

export function isSuccess(status: number | undefined): boolean {
  return status !== undefined && status >= 200 && status < 300;
}

/** `attempts` counts the earlier attempts. Without a status there was no response, and `error` says why. */
export function classifyResponse(
  response: { status?: number; responseMs: number; excerpt: string; error?: string },
  attempts: number,
  now: number,
): AttemptResult {
  const { status, responseMs, excerpt, error } = response;
  const delayMs = isSuccess(status) || status === 410 ? undefined : retryDelayMs(attempts + 1);
  const unsuccessfulState = delayMs === undefined ? 'failed' : 'pending';
  return {
    state: isSuccess(status) ? 'delivered' : unsuccessfulState,
    attempts: attempts + 1,
    responseStatus: status ?? null,
    responseMs: status === undefined ? null : responseMs,
    responseExcerpt: status === undefined ? null : excerpt,
    lastError: isSuccess(status) ? null : (error ?? explain(status)),
    nextAttemptAt: delayMs === undefined ? null : now + delayMs,
  };
}

function explain(status = 0): string {
  if (status === 410) return 'the receiver answered 410: it wants no more, and the notification is off';
  if (status >= 300 && status < 400) return `the receiver answered ${status}: redirects are not followed`;
  return `the receiver answered ${status}`;
}
