// The tab of a build with the artifacts that it produced.

import { html } from 'hono/html';
import { isFinishedBuild } from '../../domain/build.ts';
import { findSuite } from '../../store/suites.ts';
import { emptyState, linkButton } from '../frame/components.ts';
import { page, type Route } from '../frame/route.ts';
import type { Html } from '../frame/visit.ts';
import { type BuildVisit, buildView } from './build-frame.ts';

export const artifactsTabPages: Route[] = [
  page('/ui/projects/:project_id/builds/:build_id/artifacts', visit =>
    buildView(visit, { tab: 'artifacts', body: renderNoArtifacts(visit) }),
  ),
];

function renderNoArtifacts({ services, found: { project, build } }: BuildVisit): Html {
  if (!isFinishedBuild(build.buildState))
    return emptyState({
      title: 'No artifacts yet',
      text: 'They appear here when the build has finished and its files were collected.',
    });
  const suite = findSuite(services.db, project.id, build.suiteId);
  return emptyState({
    title: 'No artifacts',
    text: html`The build kept no files. Let the command write what you want to keep to the directory <code>$ASSAY_ARTIFACTS</code> (<code>/srv/artifacts</code>), or set the artifacts of the suite to files that it writes in the checkout.`,
    ...(suite && {
      action: linkButton(`/ui/projects/${project.id}/suites/${suite.id}`, 'Settings of the suite'),
    }),
  });
}
