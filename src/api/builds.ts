// Endpoints for build requests, commits, builds and their logs.

import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  buildRequestShape,
  buildShape,
  commitItemShape,
  commitShape,
  logTimesShape,
  presentBuild,
  presentBuildRequest,
  presentCommit,
  presentCommitItem,
  presentRequestDetails,
  presentSuiteDecision,
  suiteDecisionShape,
} from '../contract/records/build.ts';
import { admit } from '../domain/access.ts';
import { type BuildRequestState, buildRequestMachine } from '../domain/build.ts';
import { checkCommitRef, DETACHED } from '../domain/names.ts';
import { refusal } from '../domain/refusal.ts';
import {
  type Build,
  type BuildRequest,
  createBuildRequest,
  findBuild,
  findBuildRequest,
  listBuildRequests,
  listBuildsOfCommit,
  listCommits,
  listPageOfRequest,
  listSuiteDecisions,
  rerunBuild,
} from '../store/builds.ts';
import { cancelBuild, cancelBuildRequest } from '../store/cancels.ts';
import { buildLogPath } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import { estimateSeconds } from '../store/estimates.ts';
import { listNewestBuilds } from '../store/newest-builds.ts';
import { findCommitHeads } from '../store/overview.ts';
import { findSnapshot } from '../store/snapshots.ts';
import { findSuite } from '../store/suites.ts';
import { endpoint, listing, type Services } from './endpoint.ts';
import { flag, ids, optional, optionalId, wholeNumber } from './fields.ts';
import { listLogSeconds, respondLog } from './log.ts';

const MAX_OFFSET = 999_999_999_999_999;
const requestStates = Object.keys(buildRequestMachine) as BuildRequestState[];

const detailsField = flag(
  'Whether to add the branch, the end, the commit and the states of the suites; needs the scope `commits` too.',
);

async function presentDetailed(db: Db, requests: readonly BuildRequest[]) {
  const commits = findCommitHeads(
    db,
    requests.map(({ commitId }) => commitId).filter(id => id !== null),
  );
  const presented = new Map<bigint, ReturnType<typeof presentBuildRequest>>();
  for (const request of requests) {
    const commit = request.commitId === null ? undefined : commits.get(request.commitId);
    presented.set(request.id, {
      ...presentBuildRequest(request),
      ...presentRequestDetails(request, commit, listNewestBuilds(db, request.id)),
    });
    // Requests with a thousand suites take a while: let other calls run in between.
    await nextTurn();
  }
  return presented;
}

const SUITES = 'suites[]';

export const buildRecord = ({ db, waiting }: Pick<Services, 'db' | 'waiting'>, build: Build) =>
  presentBuild(build, { waiting: waiting(build), estimatedSeconds: estimateSeconds(db, build) });

const present = (call: Services) => (build: Build) => buildRecord(call, build);

export const builds = {
  listRequests: endpoint({
    method: 'GET',
    path: '/projects/:project_id/build_requests',
    summary: "Lists the project's build requests",
    access: 'sees',
    scope: 'build_requests',
    query: {
      branch: optional({
        doc: 'Only those that were requested for this branch, without local runs.',
        example: 'main',
      }),
      state: optional({ doc: 'Only those in this state.', oneOf: requestStates }),
      local: flag('Only local runs, or with `false` only others.'),
      details: detailsField,
    },
    response: { list: buildRequestShape },
    handle: async call => {
      const { db, project, page, query } = call;
      if (!query.details)
        return listing(page, listBuildRequests(db, project.id, page, query), presentBuildRequest);
      admit(call.caller, 'commits');
      const rows = listBuildRequests(db, project.id, page, query);
      const detailed = await presentDetailed(db, rows.slice(0, page.limit));
      return listing(page, rows, row => detailed.get(row.id) ?? presentBuildRequest(row));
    },
  }),
  createRequest: endpoint({
    method: 'POST',
    path: '/projects/:project_id/build_requests',
    summary: 'Fetches a commit, or takes a snapshot, and runs the suites whose rules match',
    access: 'sees',
    scope: 'build_requests_create',
    fields: {
      commit_ref: optional({
        doc: `A branch, a tag, or a commit hash of 7 to 40 hex digits. With \`snapshot_id\`: the branch that the working tree is on, for rules; \`${DETACHED}\` by default. Otherwise required.`,
        example: 'main',
        check: checkCommitRef,
        inExample: true,
      }),
      snapshot_id: optionalId(
        'A snapshot of yours in this project, to run suites on instead of a commit of the repository. The request has `trigger` `local`.',
      ),
      [SUITES]: ids(
        'The only suites to run, whatever their rules. With `snapshot_id` only; all suites whose rules match by default.',
      ),
    },
    checkTogether: ({ commit_ref, snapshot_id, ...values }, _, errors) => {
      if (snapshot_id !== undefined || errors.snapshot_id) return {};
      return {
        ...(commit_ref === undefined && { commit_ref: ['is_blank'] }),
        ...(values[SUITES]?.length && { [SUITES]: ['invalid_format'] }),
      };
    },
    findMissing: ({ snapshot_id, ...values }, { db, project, caller }) => [
      ...(snapshot_id !== undefined &&
      findSnapshot(db, project.id, snapshot_id)?.accountId !== caller.accountId
        ? ['snapshot_id']
        : []),
      ...(values[SUITES]?.every(id => findSuite(db, project.id, id)) === false ? [SUITES] : []),
    ],
    response: { record: buildRequestShape, status: 201 },
    handle: async ({ db, project, caller, values, hasFreeSpace }) => {
      if (!hasFreeSpace()) throw refusal('resource_temporary_unavailable');
      const { commit_ref: commitRef = DETACHED, snapshot_id: snapshotId } = values;
      const only = new Set(values[SUITES]?.map(String));
      const local = snapshotId !== undefined && {
        trigger: 'local' as const,
        snapshotId,
        ...(only.size > 0 && { suites: JSON.stringify([...only]) }),
      };
      const request = await db.writeTogether(() =>
        createBuildRequest(db, project, commitRef, caller.email, { ...local }),
      );
      return presentBuildRequest(request);
    },
  }),
  getRequest: endpoint({
    method: 'GET',
    path: '/projects/:project_id/build_requests/:build_request_id',
    summary: 'Returns a build request',
    access: 'sees',
    scope: 'build_requests',
    query: { details: detailsField },
    response: { record: buildRequestShape },
    handle: async ({ db, caller, buildRequest, query }) => {
      if (!query.details) return presentBuildRequest(buildRequest);
      admit(caller, 'commits');
      return (await presentDetailed(db, [buildRequest])).get(buildRequest.id);
    },
  }),
  listOfRequest: endpoint({
    method: 'GET',
    path: '/projects/:project_id/build_requests/:build_request_id/builds',
    summary: 'Lists the builds of a build request with the names of their suites; reruns too',
    access: 'sees',
    scope: 'commits',
    response: { list: buildShape },
    handle: call =>
      listing(call.page, listPageOfRequest(call.db, call.buildRequest.id, call.page), build => ({
        ...present(call)(build),
        suite: build.suiteName,
      })),
  }),
  cancelRequest: endpoint({
    method: 'POST',
    path: '/projects/:project_id/build_requests/:build_request_id/cancel',
    summary: 'Cancels the unfinished builds of the request',
    access: 'sees',
    scope: 'build_requests_create',
    response: { record: buildRequestShape },
    handle: ({ db, project, caller, buildRequest }) => {
      cancelBuildRequest(db, buildRequest.id, `by ${caller.email}`);
      return presentBuildRequest(findBuildRequest(db, project.id, buildRequest.id) ?? buildRequest);
    },
  }),
  listCommits: endpoint({
    method: 'GET',
    path: '/projects/:project_id/commits',
    summary: 'Lists the commits that were fetched, without those of local runs',
    access: 'sees',
    scope: 'commits',
    response: { list: commitItemShape },
    handle: ({ db, project, page }) => listing(page, listCommits(db, project.id, page), presentCommitItem),
  }),
  getCommit: endpoint({
    method: 'GET',
    path: '/projects/:project_id/commits/:commit_id',
    summary: 'Returns a commit',
    access: 'sees',
    scope: 'commits',
    response: { record: commitShape },
    handle: ({ commit }) => presentCommit(commit),
  }),
  listOfCommit: endpoint({
    method: 'GET',
    path: '/projects/:project_id/commits/:commit_id/builds',
    summary: 'Lists the builds of a commit: one for each suite that ran or will run, and reruns',
    access: 'sees',
    scope: 'commits',
    response: { list: buildShape },
    handle: call => listing(call.page, listBuildsOfCommit(call.db, call.commit.id, call.page), present(call)),
  }),
  listDecisions: endpoint({
    method: 'GET',
    path: '/projects/:project_id/commits/:commit_id/suites',
    summary: 'Lists which suites run for the commit, and the result of each rule',
    access: 'sees',
    scope: 'commits',
    response: { list: suiteDecisionShape, paged: false },
    handle: ({ db, commit }) => listSuiteDecisions(db, commit.id).map(presentSuiteDecision),
  }),
  get: endpoint({
    method: 'GET',
    path: '/projects/:project_id/builds/:build_id',
    summary: 'Returns a build',
    access: 'sees',
    scope: 'commits',
    response: { record: buildShape },
    handle: call => present(call)(call.build),
  }),
  log: endpoint({
    method: 'GET',
    path: '/projects/:project_id/builds/:build_id/log',
    summary: 'Returns the current log; supports Range',
    access: 'sees',
    scope: 'commits',
    response: { media: 'text/plain', description: 'The log, byte for byte.', ranges: true },
    handle: ({ dataDirectory, build, request }) => respondLog(request, buildLogPath(dataDirectory, build.id)),
  }),
  logTimes: endpoint({
    method: 'GET',
    path: '/projects/:project_id/builds/:build_id/log/times',
    summary: 'Returns when the log was written',
    access: 'sees',
    scope: 'commits',
    query: { from: wholeNumber('Only what is after this byte of the log.', 0, MAX_OFFSET) },
    response: { record: logTimesShape },
    handle: async ({ dataDirectory, build, query }) => ({
      times: await listLogSeconds(buildLogPath(dataDirectory, build.id), query.from ?? 0),
    }),
  }),
  cancel: endpoint({
    method: 'POST',
    path: '/projects/:project_id/builds/:build_id/cancel',
    summary: 'Cancels an unfinished build',
    access: 'sees',
    scope: 'build_requests_create',
    response: { record: buildShape },
    handle: call => {
      cancelBuild(call.db, call.build.id, `by ${call.caller.email}`);
      return present(call)(findBuild(call.db, call.project.id, call.build.id) ?? call.build);
    },
  }),
  rerun: endpoint({
    method: 'POST',
    path: '/projects/:project_id/builds/:build_id/rerun',
    summary: 'Runs the current suite on the same commit, as a new build of the same request',
    access: 'sees',
    scope: 'build_requests_create',
    response: { record: buildShape, status: 201 },
    handle: call => {
      const suite = findSuite(call.db, call.project.id, call.build.suiteId);
      if (!suite) throw refusal('not_found');
      if (!call.hasFreeSpace()) throw refusal('resource_temporary_unavailable');
      return present(call)(rerunBuild(call.db, call.build, suite));
    },
  }),
};
