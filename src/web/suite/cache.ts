// The cache section of a suite's page: its size, when it was last used, and a button to empty it.

import { html } from 'hono/html';
import { suites } from '../../api/suites.ts';
import { findCache } from '../../store/caches.ts';
import { formatCacheSize } from '../account/admin-caches.ts';
import { formatSize, propertyList, relativeTime } from '../frame/components.ts';
import { actionButton, formTo } from '../frame/form.ts';
import { action, type Route } from '../frame/route.ts';
import type { Html, View } from '../frame/visit.ts';
import { type SuiteVisit, suitePath } from '../project/frame.ts';

const PATH = '/ui/projects/:project_id/suites/:suite_id/cache';

export const suiteCachePages = (showForm: (visit: SuiteVisit) => View): Route[] => [
  action(`${PATH}/empty`, suites.emptyCache, {
    showForm,
    done: visit => ({
      to: suitePath(visit, '/settings'),
      message: 'Cache emptied. The next build starts without it.',
    }),
  }),
];

export function renderCache(visit: SuiteVisit): Html {
  const { services, found } = visit;
  const cache = findCache(services.db, found.suite.id);
  const { cacheLimitBytes } = services.vitals();
  const limit = cacheLimitBytes > 0 ? ` of at most ${formatSize(cacheLimitBytes)}` : '';
  return html`<p>Files in <code>/srv/cache</code> are kept for the next build of this suite. Do not rely on them: caches are emptied when disk space runs short.</p>
${
  cache
    ? html`${propertyList([
        ['Size', `${formatCacheSize(cache.sizeBytes)}${limit}`],
        ['Last used', relativeTime(cache.usedAt)],
        [
          'Emptied',
          cache.emptiedAt === null
            ? ''
            : html`${relativeTime(cache.emptiedAt)}, ${cache.emptiedBecause ?? ''}`,
        ],
      ])}
${actionButton(formTo(visit, suitePath(visit, '/cache/empty')), 'Empty cache', { confirm: `Empty the cache of ${found.suite.name}?`, yes: 'Empty cache', no: 'Keep cache' })}`
    : html`<p class="quiet">The cache is empty. No build has used it yet.</p>`
}`;
}
