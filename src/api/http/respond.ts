// The envelope, JSON-P, and the one place where refusals and defects become answers.

import { isDiskFull } from '../../domain/disk-full.ts';
import { Refusal, refusal } from '../../domain/refusal.ts';
import type { Log } from '../../log.ts';

const callbackForm = /^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$/;
const MAX_CALLBACK = 128;

/** The function to wrap a GET's answer in; undefined for none, a refusal for one that could be an attack. */
export function readCallback(method: string, url: URL): string | undefined {
  if (url.search === '' || (method !== 'GET' && method !== 'HEAD')) return undefined;
  const callback = url.searchParams.getAll('callback').at(-1);
  if (callback === undefined) return undefined;
  if (callback.length > MAX_CALLBACK || !callbackForm.test(callback))
    throw refusal('invalid_format', 'callback');
  return callback;
}

/** `body` as JSON, or as a call of `callback` with it. */
export function respondJson(
  body: unknown,
  status: number,
  callback: string | undefined,
  headers: Record<string, string> = {},
): Response {
  return respondText(JSON.stringify(body), status, callback, headers);
}

export function respondText(
  json: string,
  status: number,
  callback: string | undefined,
  headers: Record<string, string> = {},
): Response {
  const common = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff', ...headers };
  if (callback === undefined)
    return new Response(json, { status, headers: { 'content-type': 'application/json', ...common } });
  return new Response(`${callback}(${json})`, {
    status,
    headers: { 'content-type': 'application/javascript; charset=utf-8', ...common },
  });
}

/** The value of Link: the same list from `id` on, with all that was asked but the credentials. */
export function nextLink(baseUrl: string, url: URL, by: 'before' | 'after', id: bigint): string {
  const next = new URL(`${baseUrl}${url.pathname}${url.search}`);
  next.searchParams.delete('oauth_token');
  next.searchParams.set(by, id.toString());
  return `<${next.href}>; rel="next"`;
}

/** A disk that is full, or fails under SQLite, is the caller's to wait out, not a defect. */
const isOutOfRoom = (cause: unknown): boolean =>
  isDiskFull(cause) || String((cause as { code?: unknown } | null)?.code).startsWith('SQLITE_IOERR');

/** What a thrown thing is on the wire; a defect is logged with its cause and shown without. */
export function respondError(
  cause: unknown,
  callback: string | undefined,
  log: Log,
  facts: { requestId: string; method: string; path: string },
): Response {
  if (cause instanceof Refusal) return respondJson({ error: cause.errors }, cause.status, callback);
  if (isOutOfRoom(cause)) {
    log.error('no room for a change', { ...facts, cause });
    const full = refusal('resource_temporary_unavailable');
    return respondJson({ error: full.errors }, full.status, callback);
  }
  log.error('request failed', { ...facts, cause });
  return respondJson({ error: { generic: [] } }, 500, callback);
}
