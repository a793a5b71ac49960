// All routes of the web interface, under /ui. Each page's file begins with its own routes.

import { type Context, Hono } from 'hono';
import type { Endpoint, Services } from '../api/endpoint.ts';
import type { Bindings } from '../api/router.ts';
import { accountPages } from './account/account.ts';
import { adminPages } from './account/admin.ts';
import { adminCachePages } from './account/admin-caches.ts';
import { adminNodePages } from './account/admin-nodes.ts';
import { applicationPages } from './account/applications.ts';
import { authorizePages } from './account/authorize.ts';
import { setUpPages } from './account/setup.ts';
import { signInPages } from './account/sign-in.ts';
import { createThrottle } from './account/throttle.ts';
import { activityPages } from './activity/activity.ts';
import { commandLinePages } from './command-line.ts';
import { dependenciesPages } from './dependency/dependencies.ts';
import { dependencyPages } from './dependency/dependency.ts';
import { dependencyFilesPages } from './dependency/files.ts';
import { respondAsset, respondFavicon } from './frame/assets.ts';
import { notFoundView } from './frame/error-pages.ts';
import { commonHeaders } from './frame/headers.ts';
import { handlerFor, open, type Route } from './frame/route.ts';
import type { Guest, Site } from './frame/visit.ts';
import { manualPages } from './manual/pages.ts';
import { buildPages } from './project/build.ts';
import { collaboratorPages } from './project/collaborators.ts';
import { commitPages } from './project/commit.ts';
import { deployPages } from './project/deploys.ts';
import { projectHistoryPages } from './project/history.ts';
import { notificationPages } from './project/notifications.ts';
import { projectPages } from './project/project.ts';
import { projectsPages } from './project/projects.ts';
import { settingsPages } from './project/settings.ts';
import { strategyPages } from './project/strategies.ts';
import { suitesPages } from './project/suites.ts';
import { triggerPages } from './project/trigger.ts';
import { triggersPages } from './project/triggers.ts';
import { artifactsTabPages } from './result/artifacts-tab.ts';
import { changesTabPages } from './result/changes-tab.ts';
import { searchPages } from './result/search.ts';
import { suiteTestsPages } from './result/suite-tests.ts';
import { testPages } from './result/test.ts';
import { testsTabPages } from './result/tests-tab.ts';
import { suitePages } from './suite/suite.ts';
import { switcherPages } from './switcher.ts';
import { wallPages } from './wall/wall.ts';
import { watchPages } from './watch.ts';

/** The first match wins: /ui/projects/new comes before /ui/projects/:project_id. */
export const routes: readonly Route[] = [
  ...signInPages,
  ...setUpPages,
  ...activityPages,
  ...wallPages,
  ...searchPages,
  ...switcherPages,
  ...watchPages,
  ...projectsPages,
  ...projectPages,
  ...projectHistoryPages,
  ...commitPages,
  ...suitesPages,
  ...suitePages,
  ...suiteTestsPages,
  ...triggersPages,
  ...triggerPages,
  ...deployPages,
  ...strategyPages,
  ...notificationPages,
  ...collaboratorPages,
  ...settingsPages,
  ...buildPages,
  ...testsTabPages,
  ...testPages,
  ...artifactsTabPages,
  ...changesTabPages,
  ...dependenciesPages,
  ...dependencyPages,
  ...dependencyFilesPages,
  ...accountPages,
  ...applicationPages,
  ...authorizePages,
  ...adminPages,
  ...adminCachePages,
  ...adminNodePages,
  ...commandLinePages,
  ...manualPages,
  open(
    '/ui/assets/:hash/:name',
    async ({ request, params }) =>
      (await respondAsset(request, params.hash ?? '', params.name ?? '')) ?? notFoundView,
  ),
  open(
    '/ui/:favicon{favicon-[a-z]+\\.svg}',
    ({ params }) => respondFavicon(/-([a-z]+)/.exec(params.favicon ?? '')?.[1] ?? '') ?? notFoundView,
  ),
];

export function mountPages(router: Hono<Bindings>, services: Services, endpoints: readonly Endpoint[]): void {
  const site: Site = { services, endpoints, throttle: createThrottle() };
  // A separate router, so that the API's paths still compile into one regular expression, which is faster.
  const pages = new Hono<Bindings>();
  for (const route of routes) pages.on(route.method, route.path, handlerFor(site, route));
  pages.all(
    '*',
    handlerFor(
      site,
      open('/ui/*', guest => withoutSlash(guest) ?? notFoundView),
    ),
  );
  // The outer router renders all errors.
  pages.onError(error => {
    throw error;
  });
  router.get('/', context => context.redirect('/ui', 302));
  const forwardToPages = ({ req, env }: Context<Bindings>) => pages.fetch(req.raw, env);
  router.on(['GET', 'POST'], '/oauth2/authorize', forwardToPages);
  for (const path of ['/ui/*', '/oauth2/authorize/']) router.all(path, forwardToPages);
}

/** Redirects a path with a trailing slash; 308 keeps the method and the body. */
function withoutSlash({ url }: Guest): Response | undefined {
  if (!url.pathname.endsWith('/')) return undefined;
  return new Response(null, {
    status: 308,
    headers: {
      ...commonHeaders,
      location: url.pathname.slice(0, -1) + url.search,
      'cache-control': 'no-store',
    },
  });
}
