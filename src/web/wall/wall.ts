// The wall screen: all projects as large tiles, for a screen that everybody sees. Opened by somebody who is signed in, or
// with a link whose token shows the wall and nothing else.

import { html } from 'hono/html';
import { callerOf } from '../../api/authenticate.ts';
import type { Caller } from '../../domain/access.ts';
import { countOf } from '../../domain/text/count.ts';
import type { Theme } from '../../domain/theme.ts';
import type { Account } from '../../store/accounts.ts';
import { estimateSeconds } from '../../store/estimates.ts';
import { listVisibleTopics } from '../../store/project-ranking.ts';
import { describeWall, type LargeTile, type Wall } from '../../store/wall.ts';
import { findWallLink, recordWallLinkUse } from '../../store/wall-links.ts';
import { followActivity, progressOf } from '../activity/activity.ts';
import { assetHref } from '../frame/assets.ts';
import { formatDuration, relativeTime } from '../frame/components.ts';
import { notFoundView } from '../frame/error-pages.ts';
import { respondChangesWhile } from '../frame/page-stream.ts';
import { open, page, type Route } from '../frame/route.ts';
import { stateBadge, stateMark, toneOf } from '../frame/state.ts';
import type { Guest, Html, View, Visit } from '../frame/visit.ts';
import { wallLinkPages } from './links.ts';

const PATH = '/ui/wall';

/** The path of a token comes last, because it matches the others. */
export const wallPages: Route[] = [
  page(PATH, visit => showWall(visit, visit.caller, visit.account)),
  page(`${PATH}/stream`, followActivity),
  ...wallLinkPages,
  open(`${PATH}/:wall_token`, showWallOfLink),
  open(`${PATH}/:wall_token/stream`, followWallOfLink),
];

/** The account whose projects the link shows. Undefined for an unknown or revoked link and a suspended account. */
function findViewer({ services: { db }, params }: Guest): { caller: Caller; account: Account } | undefined {
  const found = findWallLink(db, params.wall_token ?? '');
  if (!found) return undefined;
  const caller = callerOf(db, found.account, undefined);
  if (caller.standing === 'suspended') return undefined;
  recordWallLinkUse(db, found.link);
  return { caller, account: found.account };
}

async function showWallOfLink(guest: Guest): Promise<View> {
  const viewer = findViewer(guest);
  if (!viewer) return { ...notFoundView, isSecretAddress: true };
  return { ...(await showWall(guest, viewer.caller, viewer.account)), isSecretAddress: true };
}

function followWallOfLink(guest: Guest): Response | View {
  const viewer = findViewer(guest);
  if (!viewer) return notFoundView;
  return respondChangesWhile(guest, {
    accountId: viewer.account.id,
    isAllowed: () => findViewer(guest) !== undefined,
    topics: listVisibleTopics(guest.services.db, viewer.caller),
  });
}

/** Dark, unless the account or the address asks for light colours. */
const themeOf = (asked: string | null, { theme }: Account): Theme =>
  asked === 'light' || (asked !== 'dark' && theme === 'light') ? 'light' : 'dark';

async function showWall(guest: Guest | Visit, caller: Caller, account: Account): Promise<View> {
  const { services, url } = guest;
  const wall = await describeWall(services.db, caller);
  const { failing, building } = wall.counts;
  const assets = await Promise.all(['wall.js', 'wall.css'].map(assetHref));
  const build = [services.version, ...assets].join(' ');
  return {
    title: 'Wall screen',
    state: failing > 0 ? 'failed' : building > 0 ? 'building' : 'passed',
    isBare: true,
    theme: themeOf(url.searchParams.get('theme'), account),
    styles: ['wall.css'],
    scripts: ['wall.js'],
    body: html`<p id="wall-lost" class="wall-lost" role="alert" hidden>Connection lost since <span data-since></span>. Trying again.</p>
<div id="wall" class="wall" data-build="${build}" data-stream="${url.pathname}/stream?seen=${services.db.generation()}">
<header class="wall-head"><h1>${summarize(wall)}</h1><p class="wall-clock" data-clock></p></header>
${renderTiles(guest, wall, url.pathname === PATH)}
${url.pathname === PATH ? html`<footer class="wall-foot"><a href="/ui/activity">Activity</a> · <a href="${PATH}/links">Links for screens without sign-in</a></footer>` : ''}
</div>`,
  };
}

function summarize({ counts: { failing, building, others } }: Wall): string {
  if (failing + building + others === 0) return 'No projects';
  const texts = [
    ...(failing > 0 ? [`${failing} failing`] : []),
    ...(building > 0 ? [`${building} building`] : []),
  ];
  return texts.length === 0 ? 'Nothing is failing' : texts.join(', ');
}

function renderTiles(guest: Guest | Visit, wall: Wall, hasLinks: boolean): Html {
  const { large, small, hidden } = wall;
  const nameOf = ({ id, name }: { id: bigint; name: string }) =>
    hasLinks ? html`<a href="/ui/projects/${id}">${name}</a>` : name;
  return html`${large.length === 0 ? '' : html`<ul class="wall-large ${sizeOf(large.length)}">${large.map(tile => renderLarge(guest, tile, nameOf(tile)))}</ul>`}
${small.length === 0 ? '' : html`<ul class="wall-small ${sizeOf(large.length === 0 ? small.length : 100)}">${small.map(tile => html`<li class="tile ${toneOf(tile.buildState)}">${stateMark(tile.buildState)}<h2>${nameOf(tile)}</h2></li>`)}</ul>`}
${hidden > 0 ? html`<p class="wall-more">and ${countOf(hidden, 'more project')}</p>` : ''}`;
}

/** How many tiles share the screen. */
const sizeOf = (count: number) => (count <= 2 ? 'few' : count <= 6 ? 'some' : count <= 15 ? 'many' : 'crowd');

function renderLarge({ services: { db } }: Guest | Visit, tile: LargeTile, name: Html | string): Html {
  const { newest, broken, buildState } = tile;
  const now = db.now();
  const progress =
    buildState === 'building' && newest && progressOf(newest, build => estimateSeconds(db, build), now);
  const who = broken && (broken.commit?.authorName ?? broken.request.createdBy);
  return html`<li class="tile ${broken ? 'bad' : toneOf(buildState)}${buildState === 'building' ? ' running' : ''}">
<div class="tile-state">${stateBadge(buildState)}</div>
<h2>${name}</h2>
${newest ? html`<p class="tile-branch">${newest.request.commitRef}</p>` : ''}
${broken ? html`<p class="tile-broken">Broken by ${who}, ${relativeTime(broken.request.createdAt, now)}</p>` : ''}
${progress ? html`<progress max="1" value="${progress.done.toFixed(3)}" aria-label="Progress of ${tile.name}"></progress>${progress.leftMs === undefined ? '' : html`<p class="tile-left">about ${formatDuration(progress.leftMs)} left</p>`}` : ''}
</li>`;
}
