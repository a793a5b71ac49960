// Serves style sheets, scripts and favicons. An asset's address contains the hash of its content, so browsers cache it forever.

import { createHash } from 'node:crypto';
import { asset } from '../../asset.ts';
import { commonHeaders } from './headers.ts';
import { favicon } from './state.ts';

const types: Record<string, string> = {
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
};

type Asset = { content: Uint8Array<ArrayBuffer>; hash: string; type: string };

const loaded = new Map<string, Asset>();

function load(name: string): Asset | undefined {
  const known = loaded.get(name);
  const [, extension = ''] = /^[a-z][a-z0-9-]*\.(css|js)$/.exec(name) ?? [];
  const type = types[extension];
  if (known || type === undefined) return known;
  try {
    const content = new Uint8Array(asset(`web/client/${name}`));
    const hash = createHash('sha256').update(content).digest('base64url').slice(0, 12);
    const found = { content, hash, type };
    loaded.set(name, found);
    return found;
  } catch {
    return undefined;
  }
}

/** The address of a file in client/, which includes the hash of its content. */
export function assetHref(name: string): string {
  const found = load(name);
  if (!found) throw new Error(`there is no web/client/${name}`);
  return `/ui/assets/${found.hash}/${name}`;
}

export function respondAsset(hash: string, name: string): Response | undefined {
  const found = load(name);
  if (!found) return undefined;
  // A module imports others relative to its own hash: serve them, but do not let them be cached.
  const cacheControl = found.hash === hash ? 'public, max-age=31536000, immutable' : 'no-cache';
  return new Response(found.content, {
    headers: { ...commonHeaders, 'content-type': found.type, 'cache-control': cacheControl },
  });
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
