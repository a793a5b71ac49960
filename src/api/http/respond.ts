// Creates JSON responses, with JSON-P and the link to the next page.

import { isDiskFull } from '../../domain/disk-full.ts';
import { refusal } from '../../domain/refusal.ts';
import { encodeText } from './coding.ts';

const CALLBACK_FORMAT = /^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$/;
const MAX_CALLBACK = 128;
/** Compressing less costs more than it saves. */
const MIN_COMPRESSED_LENGTH = 8 * 1024;

/** The requested path and query: a URL, or what a request without a query needs of one. */
export type Target = Readonly<Pick<URL, 'pathname' | 'search' | 'searchParams'>>;

/** The JSON-P function of a GET; undefined if there is none. Throws a refusal if it is not a plain name. */
export function readCallback(method: string, url: Target): string | undefined {
  if (url.search === '' || (method !== 'GET' && method !== 'HEAD')) return undefined;
  const callback = url.searchParams.getAll('callback').at(-1);
  if (callback === undefined) return undefined;
  if (callback.length > MAX_CALLBACK || !CALLBACK_FORMAT.test(callback))
    throw refusal('invalid_format', 'callback');
  return callback;
}

/** `body` as JSON, wrapped in a call of `callback` if there is one. */
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
  if (callback === undefined) return new Response(json, { status, headers: { ...jsonHeaders, ...headers } });
  return new Response(`${callback}(${json})`, {
    status,
    headers: { ...jsonHeaders, 'content-type': 'application/javascript; charset=utf-8', ...headers },
  });
}

const jsonHeaders = {
  'content-type': 'application/json',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
};

/**
 * Like `respondText`, compressed if it is long. A call of `callback` stays as it is: its name is chosen by another site,
 * which could guess the rest from the compressed size.
 */
export function respondLongText(
  request: Request,
  json: string,
  status: number,
  callback: string | undefined,
  headers: Record<string, string> = {},
): Response | Promise<Response> {
  if (callback !== undefined || json.length < MIN_COMPRESSED_LENGTH)
    return respondText(json, status, callback, headers);
  return encodeText(request, json).then(
    encoded =>
      new Response(encoded.body, {
        status,
        headers: { ...jsonHeaders, ...headers, ...encoded.headers },
      }),
  );
}

/** The value of the Link header: the same request from `id` on, without credentials. */
export function nextLink(baseUrl: string, url: Target, by: 'before' | 'after', id: bigint): string {
  const next = new URL(`${baseUrl}${url.pathname}${url.search}`);
  next.searchParams.delete('oauth_token');
  next.searchParams.set(by, id.toString());
  return `<${next.href}>; rel="next"`;
}

export const isDiskFailure = (error: unknown): boolean =>
  isDiskFull(error) || String((error as { code?: unknown } | null)?.code).startsWith('SQLITE_IOERR');
