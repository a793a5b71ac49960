// Administration: lists the caches of all suites with their size, and empties them.

import { html } from 'hono/html';
import { refusal } from '../../domain/refusal.ts';
import { emptyCache, findCache, findCaches, listCaches, sumCaches } from '../../store/caches.ts';
import {
  emptyState,
  formatSize,
  pageHead,
  pageLinks,
  pageNumber,
  relativeTime,
  table,
} from '../frame/components.ts';
import { actionButton, formTo } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { form, page, type Route } from '../frame/route.ts';
import { getByParam, type Html, type View, type Visit } from '../frame/visit.ts';

const ADMIN_PATH = '/ui/admin';
const PATH = `${ADMIN_PATH}/caches`;
const CACHES_PER_PAGE = 50;
const MAX_PAGES = 1_000_000;

export const adminCachePages: Route[] = [
  page(PATH, visit => forAdministrators(visit, showCaches)),
  form(`${PATH}/:suite/empty`, visit => forAdministrators(visit, emptyCacheOfSuite)),
];

/** For other accounts these pages do not exist. */
export function forAdministrators<T>(visit: Visit, show: (visit: Visit) => T): T {
  if (!visit.caller.admin) throw refusal('not_found');
  return show(visit);
}

/** The size of all caches, for the administration page. */
export function renderCacheSum({ services }: Visit): Html {
  const { cacheTotalBytes } = services.vitals();
  const { bytes } = sumCaches(services.db);
  return html`<a href="${PATH}">${formatSize(bytes)}${cacheTotalBytes > 0 ? ` of ${formatSize(cacheTotalBytes)}` : ''}</a>`;
}

function showCaches(visit: Visit): View {
  const { services, url } = visit;
  const { cacheLimitBytes, cacheTotalBytes } = services.vitals();
  const query = (url.searchParams.get('q') ?? '').trim();
  const { count, bytes } = sumCaches(services.db);
  const limits = [
    cacheTotalBytes > 0 ? `The limit for all caches is ${formatSize(cacheTotalBytes)} (CACHE_TOTAL).` : '',
    cacheLimitBytes > 0 ? `The limit for each cache is ${formatSize(cacheLimitBytes)} (CACHE_LIMIT).` : '',
    'When space runs short, the least recently used caches are emptied first.',
  ].filter(Boolean);
  return {
    title: 'Caches',
    section: 'admin',
    body: html`${pageHead('Caches', { parent: { href: ADMIN_PATH, label: 'Administration' } })}
<p class="lead">The files that suites keep in <code>/srv/cache</code> take up ${formatSize(bytes)}. ${limits.join(' ')}</p>
${
  count === 0
    ? emptyState({ title: 'No caches yet', text: 'The first build of a suite creates one.' })
    : html`<form class="row" method="get" role="search"><label class="sr" for="cache-filter">Find caches</label><div class="filter"><input id="cache-filter" name="q" type="search" value="${query}" placeholder="Suite or project" autocomplete="off" data-keys="/"></div><button class="button plain" type="submit">Find</button></form>${renderList(visit, query, count)}`
}`,
  };
}

/** One page of the caches, of those that match the query if there is one. */
function renderList(visit: Visit, query: string, all: number): Html {
  const { services, url } = visit;
  const { db } = services;
  const read = (page: number) => {
    const offset = (page - 1) * CACHES_PER_PAGE;
    return query === ''
      ? { caches: listCaches(db, CACHES_PER_PAGE, offset), count: all }
      : findCaches(db, query.split(/\s+/), CACHES_PER_PAGE, offset);
  };
  const asked = pageNumber(url, MAX_PAGES);
  const found = read(asked);
  const last = Math.max(1, Math.ceil(found.count / CACHES_PER_PAGE));
  const page = Math.min(asked, last);
  const { caches } = page === asked ? found : read(page);
  if (caches.length === 0 && query !== '')
    return html`<p class="quiet">No cache matches “${query}”. <a href="${PATH}">Show all</a></p>`;
  return html`${table({
    id: 'cache-list',
    caption: 'Caches',
    columns: ['Suite', 'Project', 'Size', 'Last used', 'Actions'],
    rows: caches.map(cache => ({
      cells: [
        cache.suiteName,
        cache.projectName,
        formatCacheSize(cache.sizeBytes),
        relativeTime(cache.usedAt),
        actionButton(formTo(visit, `${PATH}/${cache.suiteId}/empty`), 'Empty', {
          confirm: `Empty the cache of ${cache.suiteName} in ${cache.projectName}?`,
          yes: 'Empty cache',
          no: 'Keep cache',
        }),
      ],
    })),
  })}${pageLinks(url, 'Pages of caches', { page, hasNext: page < last, last })}`;
}

export const formatCacheSize = (sizeBytes: number | null) =>
  sizeBytes === null ? 'not measured yet' : formatSize(sizeBytes);

function emptyCacheOfSuite(visit: Visit): Response {
  const { db } = visit.services;
  const { suiteId } = getByParam(visit, 'suite', id => findCache(db, id));
  emptyCache(db, suiteId, `by ${visit.account.email}`);
  return respondRedirect(PATH, { message: 'Cache emptied.' });
}
