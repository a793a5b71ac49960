// The tab of a build with the results of its tests.

import { html } from 'hono/html';
import { isFinishedBuild } from '../../domain/build.ts';
import { findSuite } from '../../store/suites.ts';
import { emptyState, linkButton } from '../frame/components.ts';
import { page, type Route } from '../frame/route.ts';
import type { Html } from '../frame/visit.ts';
import { type BuildVisit, buildView } from './build-frame.ts';

export const testsTabPages: Route[] = [
  page('/ui/projects/:project_id/builds/:build_id/tests', visit =>
    buildView(visit, { tab: 'tests', body: renderNoTests(visit) }),
  ),
];

function renderNoTests({ services, found: { project, build } }: BuildVisit): Html {
  if (!isFinishedBuild(build.buildState))
    return emptyState({
      title: 'No test results yet',
      text: 'They appear here when the build has finished and its test reports were read.',
    });
  const suite = findSuite(services.db, project.id, build.suiteId);
  return emptyState({
    title: 'No test results',
    text: html`The build wrote no test report that could be read. Let the command write JUnit XML to the directory <code>$ASSAY_ARTIFACTS</code> (<code>/srv/artifacts</code>), or set the test reports of the suite to the files that it writes in the checkout.`,
    ...(suite && {
      action: linkButton(`/ui/projects/${project.id}/suites/${suite.id}`, 'Settings of the suite'),
    }),
  });
}
