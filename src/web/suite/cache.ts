// What a suite keeps between its builds, on the suite's page: how much it is, when it was used, and emptying it.

import { html } from 'hono/html';
import { suites } from '../../api/suites.ts';
import { findCache } from '../../store/caches.ts';
import { heldWords } from '../account/admin-caches.ts';
import { factList, relativeTime, sizeWords } from '../frame/components.ts';
import { actionButton, formTo } from '../frame/form.ts';
import { action, type Route } from '../frame/route.ts';
import type { Html, View } from '../frame/visit.ts';
import { type SuiteVisit, suitePath } from '../project/frame.ts';

const HERE = '/ui/projects/:project_id/suites/:suite_id/cache';

export const suiteCachePages = (shown: (visit: SuiteVisit) => View): Route[] => [
  action(`${HERE}/empty`, suites.emptyCache, {
    shown,
    done: visit => ({
      to: suitePath(visit),
      say: 'The cache is emptied: the next build begins without it.',
    }),
  }),
];

export function renderCache(visit: SuiteVisit): Html {
  const { services, found } = visit;
  const cache = findCache(services.db, found.suite.id);
  const { cacheLimitBytes } = services.vitals();
  const limit = cacheLimitBytes > 0 ? `, of ${sizeWords(cacheLimitBytes)} at most` : '';
  return html`<p>Files in <code>/srv/cache</code> are kept for the next build of this suite. Nothing may depend on them: when disk space runs short, caches are emptied.</p>
${
  cache
    ? html`${factList([
        ['Holds', `${heldWords(cache.sizeBytes)}${limit}`],
        ['Last used', relativeTime(cache.usedAt)],
        ...(cache.emptiedAt === null
          ? []
          : [['Emptied', html`${relativeTime(cache.emptiedAt)}, ${cache.emptiedBecause ?? ''}`] as const]),
      ])}
${actionButton(formTo(visit, suitePath(visit, '/cache/empty')), 'Empty cache', { confirm: `Empty the cache of ${found.suite.name}?` })}`
    : html`<p class="quiet">It is empty: no build has used it yet.</p>`
}`;
}
