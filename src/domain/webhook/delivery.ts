// Classifies a receiver's response: the delivery is delivered, retried or failed. The store records it.

import { retryDelayMs } from './retry.ts';

/** What came back. Without a status there was no response, and `error` says why. */
export type Response = {
  status?: number;
  responseMs: number;
  excerpt: string;
  error?: string;
  /** When the receiver wants to be called again. */
  retryAfterMs?: number;
};

export type Classification = {
  outcome: 'delivered' | 'retry' | 'failed';
  /** Why it was not delivered, if the response has no error of its own. */
  error?: string;
  retryAfterMs?: number;
  /** Present if the notification is switched off. */
  disableBecause?: string;
};

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

/** How a webhook's response is classified. */
export function classifyResponse({ status = 0 }: Pick<Response, 'status'>): Classification {
  if (isSuccess(status)) return { outcome: 'delivered' };
  if (status === 410)
    return {
      outcome: 'failed',
      error: 'the receiver responded with 410 (Gone), so the notification was disabled',
      disableBecause: 'the receiver responded with 410',
    };
  const isRedirect = status >= 300 && status < 400;
  return {
    outcome: 'retry',
    error: `the receiver responded with ${status}${isRedirect ? ': redirects are not followed' : ''}`,
  };
}

/** `attempts` counts the earlier attempts. After the last retry, a delivery fails. */
export function attemptResult(
  response: Response,
  classification: Classification,
  attempts: number,
  now: number,
): AttemptResult {
  const { status, responseMs, excerpt } = response;
  const { outcome, error, retryAfterMs = 0 } = classification;
  const delayMs = outcome === 'retry' ? retryDelayMs(attempts + 1) : undefined;
  const unsuccessfulState = delayMs === undefined ? 'failed' : 'pending';
  return {
    state: outcome === 'delivered' ? 'delivered' : unsuccessfulState,
    attempts: attempts + 1,
    responseStatus: status ?? null,
    responseMs: status === undefined ? null : responseMs,
    responseExcerpt: status === undefined ? null : excerpt,
    lastError:
      outcome === 'delivered' ? null : (response.error ?? error ?? `the receiver responded with ${status}`),
    nextAttemptAt: delayMs === undefined ? null : now + Math.max(delayMs, retryAfterMs),
  };
}
