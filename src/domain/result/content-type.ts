// The content types of artifacts, by the extension of their names. Everything else is bytes to download.

export const BYTES = 'application/octet-stream';

const TEXT = 'text/plain; charset=utf-8';

/** XML is shown as text: a browser would apply its style sheets and run its scripts. */
const types: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    'txt log md csv tsv xml yml yaml toml ini diff patch out err tap info'.split(' ').map(one => [one, TEXT]),
  ),
  html: 'text/html; charset=utf-8',
  htm: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
  json: 'application/json',
  map: 'application/json',
  wasm: 'application/wasm',
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  gif: 'image/gif',
  webp: 'image/webp',
  avif: 'image/avif',
  bmp: 'image/bmp',
  ico: 'image/x-icon',
  svg: 'image/svg+xml',
  woff: 'font/woff',
  woff2: 'font/woff2',
  ttf: 'font/ttf',
  otf: 'font/otf',
  mp4: 'video/mp4',
  webm: 'video/webm',
};

export function contentTypeOf(path: string): string {
  const [, extension = ''] = /\.([a-z0-9]+)$/i.exec(path) ?? [];
  const name = extension.toLowerCase();
  return Object.hasOwn(types, name) ? (types[name] as string) : BYTES;
}

export const isImage = (path: string): boolean => contentTypeOf(path).startsWith('image/');
export const isHtml = (path: string): boolean => contentTypeOf(path).startsWith('text/html');

/** Characters that would break a header, or make a name look like another one. */
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"\\/]/gu;

/** The value of Content-Disposition for a download. The name is that of the file, without its directories. */
export function attachmentOf(path: string): string {
  const name = path
    .slice(path.lastIndexOf('/') + 1)
    .replace(UNSAFE, '_')
    .toWellFormed();
  const ascii = name.replace(/[^\x20-\x7e]|[%;]/gu, '_');
  const encoded = encodeURIComponent(name).replace(
    /['()*]/g,
    one => `%${one.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${ascii}"${ascii === name ? '' : `; filename*=UTF-8''${encoded}`}`;
}
