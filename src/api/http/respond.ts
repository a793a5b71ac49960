// Writes JSON responses: the envelope, JSON-P and the link to the next page.

import { isDiskFull } from '../../domain/disk-full.ts';
import { refusal } from '../../domain/refusal.ts';

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

export const isDiskFailure = (error: unknown): boolean =>
  isDiskFull(error) || String((error as { code?: unknown } | null)?.code).startsWith('SQLITE_IOERR');
