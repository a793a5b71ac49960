// Serves style sheets, scripts and favicons. An asset's address contains the hash of its content, so browsers cache it forever.

import { createHash } from 'node:crypto';
import { chooseCoding, encodeText } from '../../api/http/coding.ts';
import { findPageFile, type PageFile } from '../../asset.ts';
import { commonHeaders } from './headers.ts';
import { favicon } from './state.ts';

const types: Record<string, string> = {
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
};

type Asset = PageFile & { hash: string; type: string };

const loaded = new Map<string, Asset>();

async function load(name: string): Promise<Asset | undefined> {
  const known = loaded.get(name);
  const [, extension = ''] = /^[a-z][a-z0-9-]*\.(css|js)$/.exec(name) ?? [];
  const type = types[extension];
  if (known || type === undefined) return known;
  const file = await findPageFile(name);
  if (!file) return undefined;
  const hash = createHash('sha256').update(file.content).digest('base64url').slice(0, 12);
  const found = { ...file, hash, type };
  loaded.set(name, found);
  return found;
}

/** The address of a script or style sheet of client/, which includes the hash of its content. */
export async function assetHref(name: string): Promise<string> {
  const found = await load(name);
  if (!found) throw new Error(`web/client/${name} does not exist, or another file imports it`);
  return `/ui/assets/${found.hash}/${name}`;
}

export async function respondAsset(
  request: Request,
  hash: string,
  name: string,
): Promise<Response | undefined> {
  const found = await load(name);
  if (!found) return undefined;
  const { body, headers } = await encode(request, found);
  // A page of the version before an upgrade names another hash: what it gets must not be kept under that name.
  const cacheControl = found.hash === hash ? 'public, max-age=31536000, immutable' : 'no-store';
  return new Response(body, {
    headers: { ...commonHeaders, ...headers, 'content-type': found.type, 'cache-control': cacheControl },
  });
}

/** The executable contains assets that are compressed already. */
function encode(request: Request, { content, compressed }: Asset) {
  if (!compressed) return encodeText(request, Buffer.from(content).toString());
  const coding = chooseCoding(request, ['br', 'gzip']);
  const headers = { vary: 'Accept-Encoding', ...(coding && { 'content-encoding': coding }) };
  return { body: coding === undefined ? content : compressed[coding], headers };
}

export function respondFavicon(tone: string): Response | undefined {
  const picture = favicon(tone);
  return picture === undefined
    ? undefined
    : new Response(picture, {
        headers: {
          ...commonHeaders,
          'content-type': 'image/svg+xml; charset=utf-8',
          'cache-control': 'public, max-age=86400',
        },
      });
}
