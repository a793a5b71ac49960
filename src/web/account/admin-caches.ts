// Administration: the caches of all suites, how much each one takes, and emptying them.

import { html } from 'hono/html';
import { parseId } from '../../domain/id.ts';
import { refusal } from '../../domain/refusal.ts';
import { type CacheOfSuite, emptyCache, findCache, listCaches, sumCaches } from '../../store/caches.ts';
import { dataTable, emptyState, filterBox, pageHead, relativeTime, sizeWords } from '../frame/components.ts';
import { actionButton, formTo } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { form, page, type Route } from '../frame/route.ts';
import type { Html, View, Visit } from '../frame/visit.ts';

const ADMINISTRATION = '/ui/admin';
const HERE = `${ADMINISTRATION}/caches`;
const SHOWN = 500;

export const adminCachePages: Route[] = [page(HERE, showCaches), form(`${HERE}/:suite/empty`, emptyOne)];

/** For everybody else these pages do not exist. */
function requireAdministrator({ caller }: Visit): void {
  if (!caller.admin) throw refusal('not_found');
}

/** How much all caches take, for the page of the appliance. */
export function renderCacheSum({ services }: Visit): Html {
  const { cacheTotalBytes } = services.vitals();
  const { bytes } = sumCaches(services.db);
  return html`<a href="${HERE}">${sizeWords(bytes)}${cacheTotalBytes > 0 ? ` of ${sizeWords(cacheTotalBytes)}` : ''}</a>`;
}

function showCaches(visit: Visit): View {
  requireAdministrator(visit);
  const { services, url } = visit;
  const { cacheLimitBytes, cacheTotalBytes } = services.vitals();
  const asked = (url.searchParams.get('q') ?? '').toLowerCase();
  const caches = listCaches(services.db, SHOWN).filter(cache => filterText(cache).includes(asked));
  const { count, bytes } = sumCaches(services.db);
  const limits = [
    cacheTotalBytes > 0 ? `All of them may take ${sizeWords(cacheTotalBytes)} (CACHE_TOTAL).` : '',
    cacheLimitBytes > 0 ? `Each may hold ${sizeWords(cacheLimitBytes)} (CACHE_LIMIT).` : '',
    'When space runs short, the least recently used are emptied first.',
  ].filter(Boolean);
  return {
    title: 'Caches',
    section: 'admin',
    scripts: ['project.js'],
    body: html`${pageHead('Caches', { above: { href: ADMINISTRATION, label: 'Administration' } })}
<p class="lead">What suites keep in <code>/srv/cache</code> takes ${sizeWords(bytes)}. ${limits.join(' ')}</p>
${
  count === 0
    ? emptyState({ title: 'No caches yet', text: 'The first build of a suite makes one.' })
    : html`${filterBox('cache-list', 'Filter caches', asked)}${dataTable({
        id: 'cache-list',
        caption: 'Caches',
        columns: ['Suite', 'Project', 'Holds', 'Last used', 'Actions'],
        rows: caches.map(cache => ({
          filterText: filterText(cache),
          cells: [
            cache.suiteName,
            cache.projectName,
            heldWords(cache.sizeBytes),
            relativeTime(cache.usedAt),
            actionButton(formTo(visit, `${HERE}/${cache.suiteId}/empty`), 'Empty', {
              confirm: `Empty the cache of ${cache.suiteName} in ${cache.projectName}?`,
            }),
          ],
        })),
      })}${count > SHOWN ? html`<p class="quiet">The largest ${SHOWN} of ${count} are shown.</p>` : ''}`
}`,
  };
}

const filterText = ({ suiteName, projectName }: CacheOfSuite) => `${suiteName} ${projectName}`.toLowerCase();

export const heldWords = (sizeBytes: number | null) =>
  sizeBytes === null ? 'not measured yet' : sizeWords(sizeBytes);

function emptyOne(visit: Visit): Response {
  requireAdministrator(visit);
  const { db } = visit.services;
  const id = parseId(visit.params.suite ?? '');
  if (id === undefined || !findCache(db, id)) throw refusal('not_found');
  emptyCache(db, id, `by ${visit.account.email}`);
  return respondRedirect(HERE, { say: 'The cache is emptied.' });
}
