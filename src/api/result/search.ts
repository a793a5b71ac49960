// Endpoints that search the logs of a project's builds, and that show whether the failure of a build was seen before.

import {
  foundLineShape,
  presentFoundLine,
  presentSeenLine,
  seenLineShape,
} from '../../contract/records/search.ts';
import { type BuildState, buildMachine } from '../../domain/build.ts';
import { refusal } from '../../domain/refusal.ts';
import { QUERY_LENGTH } from '../../domain/result/log-query.ts';
import { listSeenLines } from '../../store/result/failure-lines.ts';
import { findSuite } from '../../store/suites.ts';
import { endpoint, Listing } from '../endpoint.ts';
import { flag, optional, optionalId, required, time } from '../fields.ts';

const buildStates = Object.keys(buildMachine) as BuildState[];

/** A query is one line. Tabs are allowed: a line may be pasted from a log. */
function checkQuery(text: string): 'invalid_format' | undefined {
  const isShort = text.length < QUERY_LENGTH.min || text.length > QUERY_LENGTH.max;
  return isShort || /[\x00-\x08\x0a-\x1f\x7f]/.test(text) ? 'invalid_format' : undefined;
}

/** What to search for, and in which builds. */
export const searchFields = {
  q: required({
    doc: `The text to find, ${QUERY_LENGTH.min} to ${QUERY_LENGTH.max} characters of one line. It is literal: no character has a special meaning.`,
    example: 'connection refused',
    multiline: true,
    check: checkQuery,
  }),
  case: flag('Whether upper and lower case differ; `false` by default.'),
  suite_id: optionalId('Only builds of this suite.'),
  branch: optional({ doc: 'Only builds that were requested for this branch.', example: 'main' }),
  state: optional({ doc: 'Only builds in this state.', oneOf: buildStates }),
  since: time('Only builds that were queued since this date or time.'),
};

export const searches = {
  search: endpoint({
    method: 'GET',
    path: '/projects/:project_id/search',
    summary:
      'Searches the logs of builds, newest build first, and returns up to 5 lines of each. Responds after 2 seconds with what it has found; the next page continues there, so a page may be empty although another follows',
    access: 'sees',
    scope: 'commits',
    query: searchFields,
    response: { list: foundLineShape },
    async handle({ db, project, caller, query, page, request, logSearch }) {
      if (query.suite_id !== undefined && !findSuite(db, project.id, query.suite_id))
        throw refusal('not_found', 'suite_id');
      const { found, next } = await logSearch.search(caller.accountId, {
        text: query.q,
        isCaseSensitive: query.case ?? false,
        projectId: project.id,
        suiteId: query.suite_id,
        branch: query.branch,
        state: query.state,
        since: query.since,
        before: page.before,
        limit: page.limit,
        mayRead: () => true,
        signal: request.signal,
      });
      const lines = found.flatMap(({ build, matches }) =>
        matches.map(match => presentFoundLine(build, match)),
      );
      return new Listing(lines, next);
    },
  }),
  similar: endpoint({
    method: 'GET',
    path: '/projects/:project_id/builds/:build_id/similar',
    summary:
      'Returns the error lines of a build that did not pass, and for each the first and the last other build that has it',
    access: 'sees',
    scope: 'commits',
    response: { list: seenLineShape, paged: false },
    handle: ({ db, build }) => listSeenLines(db, build).map(presentSeenLine),
  }),
};
