// What every page has in common: the frame, the style, and the headers that keep other sites out.

import { html } from 'hono/html';
import type { HtmlEscapedString } from 'hono/utils/html';
import { asset } from '../asset.ts';

export type Html = HtmlEscapedString | Promise<HtmlEscapedString>;

const securityHeaders = {
  'content-security-policy':
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
};

export async function respondPage(title: string, body: Html, status = 200): Promise<Response> {
  const page = await html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} · Assay</title>
<link rel="stylesheet" href="/ui/style.css">
</head>
<body>
<header class="top"><a class="brand" href="/ui">Assay</a></header>
<main>${body}</main>
</body>
</html>
`;
  return new Response(page.toString(), {
    status,
    headers: { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store', ...securityHeaders },
  });
}

export function respondStyle(): Response {
  return new Response(new Uint8Array(asset('web/client/style.css')), {
    headers: { 'content-type': 'text/css; charset=utf-8', 'cache-control': 'no-cache', ...securityHeaders },
  });
}
