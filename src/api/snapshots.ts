// Endpoints for snapshots: working trees as git bundles, which build requests then run suites on.

import { rm } from 'node:fs/promises';
import { presentSnapshot, snapshotShape } from '../contract/records/snapshot.ts';
import { refusal } from '../domain/refusal.ts';
import { ArchiveFailure, receiveFile } from '../store/data/archive-file.ts';
import { uploadDirectory } from '../store/data/paths.ts';
import { endpoint, type Services } from './endpoint.ts';
import { optional } from './fields.ts';

const BUNDLE_MAX_BYTES = 256 * 1024 ** 2;
/** An upload has no total deadline while bytes arrive. */
const UPLOAD_STALL_MS = 60_000;

export const snapshots = {
  create: endpoint({
    method: 'POST',
    path: '/projects/:project_id/snapshots',
    summary:
      'Uploads a working tree as a git bundle, for build requests with `snapshot_id`. It is deleted after seven days',
    access: 'sees',
    scope: 'build_requests_create',
    query: {
      base: optional({
        doc: 'The full hash of the commit that the bundle builds on. If the server does not have it, the answer is `not_found` for `base` before the body is read.',
        check: hash => (/^[0-9a-f]{40}$/.test(hash) ? undefined : 'invalid_format'),
      }),
    },
    body: {
      description:
        'A git bundle with the ref `refs/assay/snapshot` and no other, of at most 256 MiB. Its prerequisites are commits that the server has fetched for the project. `invalid_format` for `bundle`: it is damaged, incomplete or too large, or git considers an object dangerous.',
      content: { 'application/octet-stream': { type: 'string', format: 'binary' } },
      example: '-T snapshot.bundle',
    },
    response: { record: snapshotShape, status: 201 },
    handle: async ({ project, caller, query, body, request, snapshots, dataDirectory, hasFreeSpace }) => {
      if (!hasFreeSpace()) throw refusal('resource_temporary_unavailable');
      if (query.base !== undefined && !(await snapshots.hasCommit(project.id, query.base)))
        throw refusal('not_found', 'base');
      if (Number(request.headers.get('content-length') ?? 0) > BUNDLE_MAX_BYTES)
        throw refusal('invalid_format', 'bundle');
      const { path, sizeBytes } = await receive(body, dataDirectory, hasFreeSpace);
      try {
        return presentSnapshot(await snapshots.create(project, caller.accountId, { path, sizeBytes }));
      } finally {
        await rm(path, { force: true });
      }
    },
  }),
  get: endpoint({
    method: 'GET',
    path: '/projects/:project_id/snapshots/:snapshot_id',
    summary: 'Returns a snapshot',
    access: 'sees',
    scope: 'build_requests',
    response: { record: snapshotShape },
    handle: ({ snapshot }) => presentSnapshot(snapshot),
  }),
};

/** Stores the upload on disk. Throws its failures as refusals of the field `bundle`. */
async function receive(
  body: AsyncIterable<Uint8Array>,
  dataDirectory: string,
  hasFreeSpace: Services['hasFreeSpace'],
) {
  try {
    return await receiveFile(body, {
      directory: uploadDirectory(dataDirectory),
      hasFreeSpace,
      stallMs: UPLOAD_STALL_MS,
      maxBytes: BUNDLE_MAX_BYTES,
      check(firstBytes) {
        if (!/^# v[23] git bundle\n/.test(firstBytes.toString('latin1', 0, 20)))
          throw new ArchiveFailure('unknown_format', 'not a git bundle');
      },
    });
  } catch (error) {
    if (!(error instanceof ArchiveFailure)) throw error;
    if (error.reason === 'disk_full') throw refusal('resource_temporary_unavailable');
    throw refusal(error.reason === 'empty' ? 'is_blank' : 'invalid_format', 'bundle');
  }
}
