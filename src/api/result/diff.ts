// The endpoint that compares a build with an earlier one.

import { buildDiffShape, presentDiff } from '../../contract/records/diff.ts';
import { refusal } from '../../domain/refusal.ts';
import { type Build, findBuild } from '../../store/builds.ts';
import { endpoint, type Services } from '../endpoint.ts';
import { cursor } from '../fields.ts';

export const diff = {
  get: endpoint({
    method: 'GET',
    path: '/projects/:project_id/builds/:build_id/diff',
    summary:
      'Returns what differs from an earlier build of the suite: inputs, commits, tests and log, the most likely cause first',
    access: 'sees',
    scope: 'commits',
    query: {
      against: cursor(
        'Another build of the suite. Without it: the newest build of the suite before this one that passed on the same branch, or else the newest one that passed at the nearest ancestor; `not_found` if there is none.',
      ),
    },
    response: { record: buildDiffShape },
    handle: async call => {
      const { build, query } = call;
      const against = query.against === undefined ? undefined : findOther(call, build, query.against);
      const compared = await call.compareBuilds(build, { against });
      if (!compared) throw refusal('not_found', 'against');
      return presentDiff(build, compared);
    },
  }),
};

/** The build of the same suite with this id. */
export function findOther({ db }: Pick<Services, 'db'>, build: Build, id: bigint): Build {
  const other = findBuild(db, build.projectId, id);
  if (!other || other.suiteId !== build.suiteId) throw refusal('not_found', 'against');
  return other;
}
