// The tab of a build with what changed since an earlier build of its suite.

import { emptyState } from '../frame/components.ts';
import { page, type Route } from '../frame/route.ts';
import { buildView } from './build-frame.ts';

export const changesTabPages: Route[] = [
  page('/ui/projects/:project_id/builds/:build_id/changes', visit =>
    buildView(visit, {
      tab: 'changes',
      body: emptyState({
        title: 'Nothing to compare with',
        text: 'A build is compared with the newest passed build of its suite before it: commits, command, image, variables, dependencies and tests. Run the suite until it passes once.',
      }),
    }),
  ),
];
