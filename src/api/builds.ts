// Endpoints for build requests, commits, builds and their logs.

import {
  buildRequestShape,
  buildShape,
  commitItemShape,
  commitShape,
  presentBuild,
  presentBuildRequest,
  presentCommit,
  presentCommitItem,
  presentSuiteDecision,
  suiteDecisionShape,
} from '../contract/records/build.ts';
import { checkCommitRef } from '../domain/names.ts';
import { refusal } from '../domain/refusal.ts';
import {
  type Build,
  createBuildRequest,
  findBuild,
  findBuildRequest,
  listBuildRequests,
  listBuildsOfCommit,
  listCommits,
  listSuiteDecisions,
  rerunBuild,
} from '../store/builds.ts';
import { cancelBuild, cancelBuildRequest } from '../store/cancels.ts';
import { buildLogPath } from '../store/data/paths.ts';
import { findSuite } from '../store/suites.ts';
import { endpoint, listing, type Services } from './endpoint.ts';
import { required } from './fields.ts';
import { respondLog } from './log.ts';

const present =
  ({ waiting }: Services) =>
  (build: Build) =>
    presentBuild(build, waiting(build));

export const builds = {
  listRequests: endpoint({
    method: 'GET',
    path: '/projects/:project_id/build_requests',
    summary: "Lists the project's build requests",
    access: 'sees',
    scope: 'build_requests',
    response: { list: buildRequestShape },
    handle: ({ db, project, page }) =>
      listing(page, listBuildRequests(db, project.id, page), presentBuildRequest),
  }),
  createRequest: endpoint({
    method: 'POST',
    path: '/projects/:project_id/build_requests',
    summary: 'Fetches a commit and runs the suites whose rules match',
    access: 'sees',
    scope: 'build_requests_create',
    fields: {
      commit_ref: required({
        doc: 'A branch, a tag, or a commit hash of 7 to 40 hex digits.',
        example: 'main',
        check: checkCommitRef,
      }),
    },
    response: { record: buildRequestShape, status: 201 },
    handle: ({ db, project, caller, values, hasFreeSpace }) => {
      if (!hasFreeSpace()) throw refusal('resource_temporary_unavailable');
      return presentBuildRequest(createBuildRequest(db, project, values.commit_ref, caller.email));
    },
  }),
  getRequest: endpoint({
    method: 'GET',
    path: '/projects/:project_id/build_requests/:build_request_id',
    summary: 'Returns a build request',
    access: 'sees',
    scope: 'build_requests',
    response: { record: buildRequestShape },
    handle: ({ buildRequest }) => presentBuildRequest(buildRequest),
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
    summary: 'Lists the commits that were fetched',
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
