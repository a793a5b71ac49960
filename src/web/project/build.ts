// The page of a build: its live log, and the actions on a build.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { html } from 'hono/html';
import { builds } from '../../api/builds.ts';
import { followBuild } from '../../api/firehose.ts';
import { isFinishedBuild, isRerunCandidate } from '../../domain/build.ts';
import { Refusal } from '../../domain/refusal.ts';
import { countOf } from '../../domain/text/count.ts';
import { type Build, listBuildLinks } from '../../store/builds.ts';
import { lastBuildWithoutLog } from '../../store/cleanup/sweep.ts';
import { buildLogPath } from '../../store/data/paths.ts';
import { findVisibleProject } from '../../store/projects.ts';
import { respondRedirect } from '../frame/layout.ts';
import { action, form, page, type Route } from '../frame/route.ts';
import { perform, type View, type Visit } from '../frame/visit.ts';
import { type BuildVisit, buildHref, buildView, newestBuilds, renderNow } from '../result/build-frame.ts';
import { renderLikelyCause } from '../result/likely-cause.ts';
import { renderNewFailures } from '../result/new-failures.ts';
import { renderSeenBefore } from '../result/seen-before.ts';
import {
  logScripts,
  logStyles,
  logView,
  respondLogStream,
  respondLogTimes,
  respondRawLog,
} from './log-view.ts';

const DAY_MS = 86_400_000;
const BUILD = '/projects/:project_id/builds/:build_id';

export const buildPages: Route[] = [
  page(`/ui${BUILD}`, showBuild),
  page(`/ui${BUILD}/log`, visit => respondRawLog(visit, builds.log, fileName(visit.found.build))),
  page(`/ui${BUILD}/stream`, visit => {
    const { services, found } = visit;
    return respondLogStream(visit, followBuild(services, found.project.id, found.build.id), caller =>
      findVisibleProject(services.db, caller.accountId, found.project.id),
    );
  }),
  page(`/ui${BUILD}/times`, visit =>
    respondLogTimes(visit, buildLogPath(visit.services.dataDirectory, visit.found.build.id)),
  ),
  action(`/ui${BUILD}/cancel`, builds.cancel, {
    showForm: showBuild,
    done: ({ found }) => ({ to: buildHref(found.build) }),
  }),
  action(`/ui${BUILD}/rerun`, builds.rerun, {
    showForm: showBuild,
    done: ({ found }, again) => ({
      to: `/ui/projects/${found.project.id}/builds/${again.id_str}`,
      message: 'Suite started again. This is the new build.',
    }),
  }),
  form('/ui/projects/:project_id/build_requests/:build_request_id/rerun-failed', rerunFailed),
];

const fileName = (build: Build) => `build-${build.id}.log`;

/** Reruns each build and returns the ids of the new ones. Skips builds of deleted suites. */
export async function rerunBuilds(
  visit: Visit<'project'>,
  chosen: readonly Pick<Build, 'id'>[],
): Promise<string[]> {
  const startedIds: string[] = [];
  for (const { id } of chosen) {
    try {
      const { id_str: again } = await perform(visit, builds.rerun, { params: { build_id: id.toString() } });
      startedIds.push(again);
      // There may be a thousand builds: let other requests run in between.
      await nextTurn();
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 404) throw error;
    }
  }
  return startedIds;
}

async function rerunFailed(visit: Visit<'project' | 'buildRequest'>): Promise<Response> {
  const { services, found } = visit;
  const bad = newestBuilds(listBuildLinks(services.db, found.buildRequest.id)).filter(build =>
    isRerunCandidate(build.buildState),
  );
  const startedIds = await rerunBuilds(visit, bad);
  const project = `/ui/projects/${found.project.id}`;
  const [only] = startedIds;
  if (only && startedIds.length === 1)
    return respondRedirect(`${project}/builds/${only}`, { message: 'Suite started again.' });
  return respondRedirect(`${project}/commits/${found.buildRequest.commitId ?? ''}`, {
    message: only
      ? `${startedIds.length} suites started again.`
      : 'No suite of this build request has failed.',
  });
}

/** What is shown instead of a log without lines. */
function explainEmptyLog({ services, found: { build } }: BuildVisit): string {
  if (!isFinishedBuild(build.buildState))
    return 'The log appears here as soon as the build prints something.';
  if (build.startedAt === null) return 'There is no log, because the build never started.';
  if (build.id > lastBuildWithoutLog(services.db)) return 'The build printed nothing.';
  const days = countOf(Math.round(services.logsMs / DAY_MS), 'day');
  const finished = new Date(build.finishedAt ?? build.createdAt).toISOString().slice(0, 10);
  return `The log was removed. This server keeps logs for ${days}, and the build finished on ${finished}.`;
}

async function showBuild(visit: BuildVisit): Promise<View> {
  const { services, found, url } = visit;
  const { build } = found;
  // log.js requests everything but the log when the state changes.
  const log =
    url.searchParams.get('part') === 'head'
      ? renderNow(visit)
      : await logView({
          base: buildHref(build),
          path: buildLogPath(services.dataDirectory, build.id),
          state: build.buildState,
          node: build.node,
          isLive: !isFinishedBuild(build.buildState),
          fileName: fileName(build),
          empty: explainEmptyLog(visit),
          now: renderNow(visit),
        });
  return buildView(visit, {
    tab: 'log',
    scripts: logScripts,
    styles: logStyles,
    body: html`<div id="build-findings" data-live>${await renderNewFailures(visit)}${await renderLikelyCause(visit)}${renderSeenBefore(visit)}</div>${log}`,
  });
}
