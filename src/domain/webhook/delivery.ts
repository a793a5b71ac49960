// What a receiver's answer means for a delivery: delivered, tried again, or given up. Recording it is left to the store.

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

/** `attempts` were made before this one; without a status there was no answer, and `error` says why. */
export function classifyResponse(
  answer: { status?: number; responseMs: number; excerpt: string; error?: string },
  attempts: number,
  now: number,
): AttemptResult {
  const { status, responseMs, excerpt, error } = answer;
  const delayMs = isSuccess(status) || status === 410 ? undefined : retryDelayMs(attempts + 1);
  const otherwise = delayMs === undefined ? 'failed' : 'pending';
  return {
    state: isSuccess(status) ? 'delivered' : otherwise,
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
