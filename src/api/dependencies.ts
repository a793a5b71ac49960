// Dependencies: instructions, archives, sharing.

import {
  createdDependencyShape,
  dependencyShape,
  destroyedShape,
  presentCreatedDependency,
  presentUploadedDependency,
  uploadedDependencyShape,
} from '../contract/records.ts';
import type { Caller } from '../domain/access.ts';
import { checkCommand, checkPrefix, checkSource } from '../domain/names.ts';
import { type Errors, refusal } from '../domain/refusal.ts';
import { ArchiveFailure, keepArchive, type ReceivedArchive, receiveArchive } from '../store/data/archive.ts';
import { archivePath, dependencyLogPath, uploadDirectory } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import {
  acceptArchive,
  cancelCompile,
  createDependency,
  type Dependency,
  deleteDependency,
  findDependency,
  findVisibleDependency,
  isDependencyInUse,
  isDependencyNameTaken,
  isUsedByOthers,
  listOwnDependencies,
  listSharedDependencies,
  setShared,
  updateDependency,
} from '../store/dependencies.ts';
import { dependencyRecord, relatesTo } from '../store/dependency-use.ts';
import { type Call, endpoint, findMissingImage, listing } from './endpoint.ts';
import { flag, ids, imageField, optional, required, requiredName } from './fields.ts';
import { respondLog } from './log.ts';

const DEFAULT_PREFIX = '/srv/dependency';
/** An upload may take as long as it likes while it keeps moving. */
const UPLOAD_STALL_MS = 60_000;
const RELATED = 'related_dependencies[]';

const fields = {
  name: requiredName({ doc: "Unique among the owner's dependencies.", example: 'zlib' }),
  command: required({
    doc: 'Compile command, run with `sh -c`; must contain the prefix.',
    example: './configure --prefix=/srv/dependency && make && make install',
    multiline: true,
  }),
  prefix: optional({
    doc: `Where compiled artifacts are looked up; ${DEFAULT_PREFIX} by default.`,
    check: checkPrefix,
  }),
  source: optional({
    doc: 'Directory inside the archive to enter before the command runs.',
    check: checkSource,
  }),
  launch_command: optional({ doc: 'Starts the dependency before a suite; must detach.', multiline: true }),
  description: optional({ doc: 'Arbitrary text.', example: 'Compression', multiline: true }),
  image: imageField('The image to compile in instead of the default one:'),
  [RELATED]: ids('Dependencies whose artifacts the compile and the suites need too.'),
} as const;

/** Never itself, never in a circle, none twice. */
function checkRelated(db: Db, related: bigint[] = [], own?: bigint): Errors {
  const circular = own !== undefined && related.some(id => relatesTo(db, id, own));
  return circular || new Set(related).size < related.length ? { [RELATED]: ['invalid_format'] } : {};
}

/** It may only relate to what its owner can see. */
function findMissingRelated({ db, caller }: Pick<Call, 'db' | 'caller'>, related: bigint[] = []): string[] {
  return related.every(id => findVisibleDependency(db, caller.accountId, id)) ? [] : [RELATED];
}

/** Which prefix a command has to fit cannot be said where the prefix itself is wrong. */
const fits = (command: string, prefix: string, wrong: Readonly<Errors>) =>
  wrong.prefix !== undefined || !checkCommand(command, prefix);

/** Others may fetch what is shared, and see nothing of how it was compiled. */
export function hideFromOthers({ caller, dependency }: { caller: Caller; dependency: Dependency }): void {
  if (dependency.ownerId !== caller.accountId) throw refusal('not_found');
}

/** Stores the upload on disk, and turns its failures into refusals of the field `archive`. */
async function receive(
  request: Request,
  dataDirectory: string,
  hasFreeSpace: () => boolean,
): Promise<ReceivedArchive> {
  const body = request.body as AsyncIterable<Uint8Array> | null;
  if (!body) throw refusal('is_blank', 'archive');
  try {
    return await receiveArchive(body, {
      directory: uploadDirectory(dataDirectory),
      hasFreeSpace,
      stallMs: UPLOAD_STALL_MS,
    });
  } catch (error) {
    if (!(error instanceof ArchiveFailure)) throw error;
    if (error.reason === 'disk_full') throw refusal('resource_temporary_unavailable');
    throw refusal(error.reason === 'empty' ? 'is_blank' : 'invalid_format', 'archive');
  }
}

export const dependencies = {
  list: endpoint({
    method: 'GET',
    path: '/dependencies',
    summary: "The caller's dependencies, or with `shared=true` those that others share",
    access: 'users',
    scope: 'dependencies',
    // What others share is not the caller's to pay for.
    allowUnpaid: url => /^(true|1)$/.test(url.searchParams.getAll('shared').at(-1) ?? ''),
    query: { shared: flag('Those that others share instead of own ones.') },
    response: { list: dependencyShape },
    handle: ({ db, caller, page, query }) => {
      const list = query.shared ? listSharedDependencies : listOwnDependencies;
      return listing(page, list(db, caller.accountId, page), dependency => dependencyRecord(db, dependency));
    },
  }),
  create: endpoint({
    method: 'POST',
    path: '/dependencies',
    summary: 'Creates a dependency, which then waits for its archive',
    access: 'users',
    scope: 'dependencies',
    fields,
    checkTogether: (values, call, wrong) => {
      const { name, command, prefix = DEFAULT_PREFIX } = values;
      return {
        ...(name !== undefined &&
          isDependencyNameTaken(call.db, call.caller.accountId, name) && { name: ['already_exists'] }),
        ...(command !== undefined && !fits(command, prefix, wrong) && { command: ['invalid_format'] }),
        ...checkRelated(call.db, values[RELATED]),
      };
    },
    findMissing: (values, call) => [
      ...findMissingRelated(call, values[RELATED]),
      ...findMissingImage(values, call),
    ],
    response: { record: createdDependencyShape, status: 201 },
    handle: ({ db, caller, values }) =>
      presentCreatedDependency(
        createDependency(
          db,
          caller.accountId,
          {
            name: values.name,
            description: values.description ?? '',
            command: values.command,
            prefix: values.prefix ?? DEFAULT_PREFIX,
            source: values.source ?? '',
            launchCommand: values.launch_command ?? '',
            image: values.image ?? null,
          },
          values[RELATED] ?? [],
        ),
      ),
  }),
  get: endpoint({
    method: 'GET',
    path: '/dependencies/:dependency_id',
    summary: 'A dependency: an own one, or one that is shared',
    access: 'sees',
    scope: 'dependencies',
    response: { record: dependencyShape },
    handle: ({ db, dependency }) => dependencyRecord(db, dependency),
  }),
  update: endpoint({
    method: 'PUT',
    path: '/dependencies/:dependency_id',
    summary: 'Changes the fields that are sent; they count from the next compile on',
    access: 'users',
    scope: 'dependencies',
    fields,
    checkTogether: (values, call, wrong) => {
      const { dependency } = call;
      const prefix = values.prefix === '' ? DEFAULT_PREFIX : (values.prefix ?? dependency.prefix);
      const command = values.command ?? dependency.command;
      const touched = values.command !== undefined || values.prefix !== undefined;
      return {
        ...(values.name !== undefined &&
          isDependencyNameTaken(call.db, dependency.ownerId, values.name, dependency) && {
            name: ['already_exists'],
          }),
        ...(touched && !fits(command, prefix, wrong) && { command: ['invalid_format'] }),
        ...checkRelated(call.db, values[RELATED], dependency.id),
      };
    },
    findMissing: (values, call) => [
      ...findMissingRelated(call, values[RELATED]),
      ...findMissingImage(values, call),
    ],
    response: { record: dependencyShape },
    handle: ({ db, dependency, values }) =>
      dependencyRecord(
        db,
        updateDependency(
          db,
          dependency,
          {
            ...(values.name !== undefined && { name: values.name }),
            ...(values.description !== undefined && { description: values.description }),
            ...(values.command !== undefined && { command: values.command }),
            ...(values.prefix !== undefined && {
              prefix: values.prefix === '' ? DEFAULT_PREFIX : values.prefix,
            }),
            ...(values.source !== undefined && { source: values.source }),
            ...(values.launch_command !== undefined && { launchCommand: values.launch_command }),
            ...(values.image !== undefined && { image: values.image === '' ? null : values.image }),
          },
          values[RELATED],
        ),
      ),
  }),
  delete: endpoint({
    method: 'DELETE',
    path: '/dependencies/:dependency_id',
    summary: 'Deletes a dependency that nothing uses',
    access: 'users',
    scope: 'dependencies',
    response: { record: destroyedShape },
    handle: ({ db, dependency }) => {
      if (isDependencyInUse(db, dependency.id)) throw refusal('is_reserved');
      deleteDependency(db, dependency);
      return { destroyed: true };
    },
  }),
  upload: endpoint({
    method: 'POST',
    path: '/dependencies/:dependency_id/archive',
    summary: 'Uploads the archive of the source code, which is then compiled',
    access: 'users',
    scope: 'dependencies',
    binary: { description: 'A tar (plain, gzip, bzip2, xz or zstd) or zip archive, of any size.' },
    response: { record: uploadedDependencyShape, status: 202 },
    handle: async ({ db, dependency, dataDirectory, request, hasFreeSpace }) => {
      if (dependency.compileState === 'compiling' || !hasFreeSpace())
        throw refusal('resource_temporary_unavailable');
      const received = await receive(request, dataDirectory, hasFreeSpace);
      await keepArchive(received.path, archivePath(dataDirectory, received.sha256));
      const uploaded = acceptArchive(db, dependency.id, {
        archiveHash: received.sha256,
        archiveContentType: received.contentType,
        archiveFileSize: received.sizeBytes,
      });
      // Deleted or taken for compiling meanwhile; the sweep finds the file that nobody refers to.
      if (!uploaded)
        throw refusal(findDependency(db, dependency.id) ? 'resource_temporary_unavailable' : 'not_found');
      return presentUploadedDependency(uploaded);
    },
  }),
  cancel: endpoint({
    method: 'POST',
    path: '/dependencies/:dependency_id/cancel',
    summary: 'Cancels a compile that has not ended',
    access: 'users',
    scope: 'dependencies',
    response: { record: dependencyShape },
    handle: ({ db, dependency }) => {
      cancelCompile(db, dependency);
      return dependencyRecord(db, findDependency(db, dependency.id) ?? dependency);
    },
  }),
  share: endpoint({
    method: 'POST',
    path: '/dependencies/:dependency_id/share',
    summary: 'Makes a compiled dependency usable by every account',
    access: 'users',
    scope: 'dependencies',
    response: { record: dependencyShape },
    handle: ({ db, dependency }) => {
      if (!dependency.shared && dependency.artifactHash === null)
        throw refusal('resource_temporary_unavailable');
      return dependencyRecord(db, setShared(db, dependency, true));
    },
  }),
  unshare: endpoint({
    method: 'POST',
    path: '/dependencies/:dependency_id/unshare',
    summary: 'Takes a shared dependency back, unless another account uses it',
    access: 'users',
    scope: 'dependencies',
    response: { record: dependencyShape },
    handle: ({ db, dependency }) => {
      if (dependency.shared && isUsedByOthers(db, dependency)) throw refusal('is_reserved');
      return dependencyRecord(db, setShared(db, dependency, false));
    },
  }),
  log: endpoint({
    method: 'GET',
    path: '/dependencies/:dependency_id/log',
    summary: 'The log of the last compile; Range is honoured',
    access: 'sees',
    scope: 'dependencies',
    response: { media: 'text/plain', description: 'The log, byte for byte.', ranges: true },
    handle: call => {
      hideFromOthers(call);
      return respondLog(call.request, dependencyLogPath(call.dataDirectory, call.dependency.id));
    },
  }),
};
