// The layout around every page: navigation, account, flash messages, and a title and favicon that show the state.

import { html } from 'hono/html';
import { encodeText } from '../../api/http/coding.ts';
import { assetHref } from './assets.ts';
import { navItem } from './components.ts';
import { pageHeaders } from './headers.ts';
import { renderLiveParts } from './live-parts.ts';
import { flashCookie, noFlashCookie } from './session.ts';
import { stateLabel, toneOf } from './state.ts';
import type { Guest, Html, Section, View } from './visit.ts';

const sections: [section: Section, href: string, label: string][] = [
  ['activity', '/ui/activity', 'Activity'],
  ['projects', '/ui/projects', 'Projects'],
  ['search', '/ui/search', 'Search'],
  ['dependencies', '/ui/dependencies', 'Dependencies'],
  ['applications', '/ui/applications', 'Applications'],
  ['admin', '/ui/admin', 'Administration'],
  ['api', '/ui/api', 'API'],
  ['manual', '/ui/manual', 'Manual'],
];

/** The keyboard shortcuts of sections. */
const sectionKeys: Partial<Record<string, string>> = {
  activity: 'g a',
  projects: 'g p',
  // Pages with a search or a filter of their own take this key.
  search: 'g s,/',
  dependencies: 'g d',
  manual: 'g m',
};

/** Sections that a narrow screen shows under “More”. */
const lessUsed: readonly Section[] = ['dependencies', 'applications', 'admin', 'api', 'manual'];

/** Sections that need no sign-in. */
const openSections: readonly Section[] = ['api', 'manual'];

export async function respondView(guest: Guest, view: View): Promise<Response> {
  const headers = new Headers(pageHeaders(view.formTargets));
  if (view.isSecretAddress) headers.set('referrer-policy', 'no-referrer');
  if (guest.flash) headers.append('set-cookie', noFlashCookie);
  const [asked, ...known] = guest.request.headers.get('assay-live')?.split(' ') ?? [];
  const text =
    asked === undefined
      ? String(await renderDocument(guest, view))
      : `${await renderState(view)}${asked === 'parts' ? renderLiveParts(String(await view.body), new Set(known)) : ''}`;
  const status = view.status ?? 200;
  if (!mayCompress(guest)) return new Response(text, { status, headers });
  const encoded = await encodeText(guest.request, text);
  for (const [name, value] of Object.entries(encoded.headers)) headers.set(name, value);
  return new Response(encoded.body, { status, headers });
}

/**
 * A page that another site opens is not compressed: that site chooses the query, which some pages repeat, and could guess
 * the rest of the page from the compressed size.
 */
function mayCompress({ session, request }: Guest): boolean {
  const site = request.headers.get('sec-fetch-site');
  return !session || site === 'same-origin' || site === 'none';
}

/** Redirects to another page, which shows `message` once. */
export function respondRedirect(
  to: string,
  options: { message?: string | undefined; cookies?: readonly string[] } = {},
): Response {
  const headers = new Headers({ location: to, 'cache-control': 'no-store' });
  if (options.message) headers.append('set-cookie', flashCookie(options.message));
  for (const one of options.cookies ?? []) headers.append('set-cookie', one);
  return new Response(null, { status: 303, headers });
}

/** The title and the icon, which show the state. */
function renderState(view: View): Html {
  const title = view.state === undefined ? view.title : `${stateLabel(view.state)} · ${view.title}`;
  const icon = `/ui/favicon-${view.state === undefined ? 'idle' : toneOf(view.state)}.svg`;
  return html`<title>${title} · Assay</title>
<link rel="icon" type="image/svg+xml" href="${icon}">`;
}

async function renderDocument(guest: Guest, view: View): Promise<Html> {
  const styles = await Promise.all(['base.css', ...(view.styles ?? [])].map(assetHref));
  const scripts = await Promise.all(
    [...(view.isBare ? [] : ['assay.js']), ...(view.scripts ?? [])].map(assetHref),
  );
  const account = guest.session?.account;
  const timeZone = account?.timeZone ?? '';
  const theme = view.theme ?? account?.theme ?? 'system';
  return html`<!doctype html>
<html lang="en"${theme === 'system' ? '' : html` data-theme="${theme}"`}${timeZone === '' ? '' : html` data-time-zone="${timeZone}"`}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="${theme === 'system' ? 'light dark' : theme}">
${renderState(view)}
${styles.map(href => html`<link rel="stylesheet" href="${href}">`)}
${scripts.map(href => html`<script type="module" src="${href}"></script>`)}
</head>
<body>
${view.isBare ? html`<main class="bare">${view.body}</main>` : renderFrame(guest, view)}
</body>
</html>
`;
}

function renderFrame(guest: Guest, view: View): Html {
  return html`<a class="skip" href="#content">Skip to content</a>
${renderTop(guest, view)}
<main id="content" tabindex="-1">
${guest.flash ? html`<p class="flash done" role="status">${guest.flash}</p>` : ''}
${guest.caller?.standing === 'payment_required' ? paymentNotice : ''}
${view.body}
</main>
<footer class="foot"><span>Assay ${guest.services.version}</span> · <a href="/ui/client">Command line</a><span data-shortcuts hidden> · <button class="link" type="button">Keyboard shortcuts</button></span></footer>`;
}

const paymentNotice = html`<p class="flash failed" role="status">Your account requires payment. Until then you cannot use what you own, but you can still work on other people’s projects. Ask your administrator.</p>`;

function renderTop({ session, caller }: Guest, view: View): Html {
  const brand = html`<a class="brand" href="/ui"><svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><path class="brand-back" d="M12 1.5 21.5 7v10L12 22.5 2.5 17V7z"/><path class="brand-mark" d="M7 16.2 12 6.6l5 9.6M9 13h6"/></svg>Assay</a>`;
  const shown = sections.filter(([section]) =>
    caller ? section !== 'admin' || caller.admin : openSections.includes(section),
  );
  const items = (some: typeof shown) =>
    some.map(([section, href, label]) =>
      navItem(href, label, view.section === section, sectionKeys[section]),
    );
  if (!session || !caller)
    return html`<header class="top"><div class="top-in">${brand}<nav aria-label="Main"><ul>${items(shown)}</ul></nav></div></header>`;
  const isLessUsed = ([section]: (typeof shown)[number]) => lessUsed.includes(section);
  const others = shown.filter(isLessUsed);
  const isInOthers = others.some(([section]) => section === view.section);
  const navigation = html`<nav aria-label="Main"><ul>${items(shown.filter(one => !isLessUsed(one)))}</ul><ul class="top-others">${items(others)}</ul>
<details class="top-more"><summary${isInOthers ? html` aria-current="true"` : ''}>More</summary><ul>${items(others)}</ul></details></nav>`;
  return html`<header class="top"><div class="top-in">
${brand}
${navigation}
<a class="switch" href="/ui/switch" data-switch="${caller.accountId}" data-title="${view.title}"><svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 3.5 3.5"/></svg><span>Go to</span></a>
<form class="account" method="post" action="/ui/sign-out">
<input type="hidden" name="csrf" value="${session.csrf}">
<a class="account-email" href="/ui/account" title="${caller.email}"${view.section === 'account' ? html` aria-current="page"` : ''}>${caller.email}</a>
<button class="link" type="submit">Sign out</button>
</form>
</div></header>`;
}
