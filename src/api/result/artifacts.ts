// Endpoints for the artifacts of builds: the files that they produced.

import { artifactShape, presentArtifact } from '../../contract/records/artifact.ts';
import { buildShape } from '../../contract/records/build.ts';
import { destroyedShape } from '../../contract/wire.ts';
import { isFinishedBuild } from '../../domain/build.ts';
import { refusal } from '../../domain/refusal.ts';
import type { Build } from '../../store/builds.ts';
import type { Db } from '../../store/database/db.ts';
import {
  deleteArtifacts,
  findNewestPassedBuild,
  keepArtifacts,
} from '../../store/result/artifact-retention.ts';
import {
  type BuildArtifact,
  findBuildArtifact,
  findBuildArtifactByPath,
  listBuildArtifacts,
} from '../../store/result/build-artifacts.ts';
import { buildRecord } from '../builds.ts';
import { endpoint, Listing, type Services } from '../endpoint.ts';
import { cursor, optional, PAGE_LIMIT, pageFields, required } from '../fields.ts';
import { attachmentHeaders, respondArtifact, respondArtifacts } from './artifact-response.ts';

const BUILD = '/projects/:project_id/builds/:build_id';
const PATH_BYTES = 1024;

const pathField = required({
  doc: 'Path of the file, as the list shows it.',
  example: 'coverage/index.html',
  maxBytes: PATH_BYTES,
});

const content = {
  media: 'application/octet-stream',
  description: 'The content of the file, with its SHA-256 as ETag.',
  ranges: true,
  conditional: true,
} as const;

const respond = (call: Services & { request: Request }, artifact: BuildArtifact) =>
  respondArtifact(call, call.request, artifact, attachmentHeaders(artifact.path));

function getByPath(db: Db, build: Build | undefined, path: string): BuildArtifact {
  const artifact = build && findBuildArtifactByPath(db, build.id, path);
  if (!artifact) throw refusal('not_found');
  return artifact;
}

const setKeep = (call: Services & { build: Build }, keep: boolean) => {
  const build = keepArtifacts(call.db, call.build, keep);
  if (!build) throw refusal('not_found');
  return buildRecord(call, build);
};

export const artifacts = {
  list: endpoint({
    method: 'GET',
    path: `${BUILD}/artifacts`,
    summary: 'Lists the artifacts of a build in order of path',
    access: 'sees',
    scope: 'commits',
    query: { after: cursor('Only artifacts after this one.'), limit: pageFields.limit },
    response: { list: artifactShape, paged: false },
    handle: ({ db, build, query }) => {
      const limit = query.limit ?? PAGE_LIMIT.defaultValue;
      const after = query.after === undefined ? undefined : findBuildArtifact(db, build.id, query.after);
      if (query.after !== undefined && !after) throw refusal('invalid_format', 'after');
      const rows = listBuildArtifacts(db, build.id, { afterPath: after?.path, limit: limit + 1 });
      const shown = rows.slice(0, limit);
      const next = rows.length > limit ? shown.at(-1)?.id : undefined;
      return new Listing(shown.map(presentArtifact), next, [], 'after');
    },
  }),
  get: endpoint({
    method: 'GET',
    path: `${BUILD}/artifacts/:artifact_id`,
    summary: 'Returns an artifact; supports Range',
    access: 'sees',
    scope: 'commits',
    response: content,
    handle: call => respond(call, call.artifact),
  }),
  getByPath: endpoint({
    method: 'GET',
    path: `${BUILD}/artifact`,
    summary: 'Returns an artifact by its path; supports Range',
    access: 'sees',
    scope: 'commits',
    query: { path: pathField },
    response: content,
    handle: call => respond(call, getByPath(call.db, call.build, call.query.path)),
  }),
  zip: endpoint({
    method: 'GET',
    path: `${BUILD}/artifacts.zip`,
    summary: 'Returns all artifacts of a build as a ZIP; supports Range',
    access: 'sees',
    scope: 'commits',
    response: { ...content, media: 'application/zip', description: 'A ZIP of all artifacts.' },
    handle: call => respondArtifacts(call, call.request, call.build),
  }),
  getNewest: endpoint({
    method: 'GET',
    path: '/projects/:project_id/suites/:suite_id/artifact',
    summary:
      'Returns an artifact of the newest build of the suite that passed; the header X-Assay-Build has the id of the build',
    access: 'sees',
    scope: 'commits',
    query: { path: pathField, branch: optional({ doc: 'Only builds of this branch.', example: 'main' }) },
    response: content,
    handle: async call => {
      const build = findNewestPassedBuild(call.db, call.suite, call.query.branch);
      const response = await respond(call, getByPath(call.db, build, call.query.path));
      response.headers.set('x-assay-build', String(build?.id));
      return response;
    },
  }),
  keep: endpoint({
    method: 'POST',
    path: `${BUILD}/keep`,
    summary: 'Keeps the artifacts of a build until somebody deletes them',
    access: 'sees',
    scope: 'commits',
    response: { record: buildShape },
    handle: call => setKeep(call, true),
  }),
  unkeep: endpoint({
    method: 'POST',
    path: `${BUILD}/unkeep`,
    summary: 'Lets the artifacts of a build expire after ARTIFACT_DAYS again',
    access: 'sees',
    scope: 'commits',
    response: { record: buildShape },
    handle: call => setKeep(call, false),
  }),
  delete: endpoint({
    method: 'DELETE',
    path: `${BUILD}/artifacts`,
    summary: 'Deletes all artifacts of a finished build, also if they are kept',
    access: 'users',
    scope: 'commits',
    response: { record: destroyedShape },
    handle: async ({ db, dataDirectory, build }) => {
      // Its artifacts may be being collected.
      if (!isFinishedBuild(build.buildState)) throw refusal('is_reserved');
      await deleteArtifacts(db, dataDirectory, build);
      return { destroyed: true };
    },
  }),
};
