// Notifications of the browser when a build ends: the button that asks for one, and the states that watch.js asks for.

import { html } from 'hono/html';
import { isFinishedBuild, isFinishedCommit } from '../domain/build.ts';
import { parseId } from '../domain/id.ts';
import { findBuild, findCommit } from '../store/builds.ts';
import type { Db } from '../store/database/db.ts';
import { findVisibleProject } from '../store/projects.ts';
import { commonHeaders } from './frame/headers.ts';
import { page, type Route } from './frame/route.ts';
import { stateLabel } from './frame/state.ts';
import type { Html, Visit } from './frame/visit.ts';

const MAX_WATCHED = 50;
const watchable = /^\/ui\/projects\/(\d+)\/(builds|commits)\/(\d+)$/;

export const watchPages: Route[] = [page('/ui/watched', respondWatched)];

/** Shown by watch.js on the page of an unfinished build or commit, whose path is `href`. */
export const watchButton = (href: string): Html =>
  html`<button class="button plain" type="button" data-watch="${href}" aria-pressed="false" title="Show a notification when it ends, while a page of Assay is open" hidden>Notify me</button>`;

/** The states of the builds and commits that the query names by their paths. Those that the visitor cannot see are left out. */
function respondWatched({ services: { db }, account, url }: Visit): Response {
  const watched = url.searchParams
    .getAll('of')
    .slice(0, MAX_WATCHED)
    .flatMap(href => {
      const [, inProject = '', kind, idText = ''] = watchable.exec(href) ?? [];
      const [projectId, id] = [parseId(inProject), parseId(idText)];
      if (projectId === undefined || id === undefined) return [];
      const project = findVisibleProject(db, account.id, projectId);
      if (!project) return [];
      const found = kind === 'builds' ? stateOfBuild(db, projectId, id) : stateOfCommit(db, projectId, id);
      return found ? [{ href, project: project.name, ...found, label: stateLabel(found.state) }] : [];
    });
  return Response.json({ watched }, { headers: { ...commonHeaders, 'cache-control': 'no-store' } });
}

function stateOfBuild(db: Db, projectId: bigint, id: bigint) {
  const build = findBuild(db, projectId, id);
  return (
    build && { name: build.suiteName, state: build.buildState, isFinished: isFinishedBuild(build.buildState) }
  );
}

function stateOfCommit(db: Db, projectId: bigint, id: bigint) {
  const commit = findCommit(db, projectId, id);
  return (
    commit && {
      name: commit.message.split('\n', 1)[0] ?? '',
      state: commit.buildState,
      isFinished: isFinishedCommit(commit.buildState),
    }
  );
}
