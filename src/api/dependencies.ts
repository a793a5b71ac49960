// Dependency endpoints: records, archives, compiles and sharing.

import {
  createdDependencyShape,
  dependencyShape,
  presentCreatedDependency,
  presentUploadedDependency,
  uploadedDependencyShape,
} from '../contract/records/dependency.ts';
import { destroyedShape } from '../contract/wire.ts';
import type { Caller } from '../domain/access.ts';
import { checkEnvironment, LAUNCH_SECONDS } from '../domain/dependency.ts';
import { checkCommand, checkPrefix, checkSource } from '../domain/names.ts';
import { type Errors, refusal } from '../domain/refusal.ts';
import {
  ArchiveFailure,
  keepSourceArchive,
  type ReceivedArchive,
  receiveArchive,
} from '../store/data/archive-file.ts';
import { archivePath, dependencyLogPath, uploadDirectory } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import {
  acceptArchive,
  cancelCompile,
  compileDependents,
  createDependency,
  type Dependency,
  deleteDependency,
  enqueueCompile,
  findDependency,
  findVisibleDependency,
  isDependencyInUse,
  isDependencyNameTaken,
  listOwnDependencies,
  listSharedDependencies,
  setShared,
  updateDependency,
} from '../store/dependencies.ts';
import { dependencyRecord, listRelated, relatesTo } from '../store/dependency-use.ts';
import { type Call, endpoint, findMissingImage, listing, type Services } from './endpoint.ts';
import { flag, ids, imageField, optional, required, requiredName, wholeNumber } from './fields.ts';
import { respondLog } from './log.ts';

const DEFAULT_PREFIX = '/srv/dependency';
/** An upload has no total deadline while bytes arrive. */
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
  launch_command: optional({
    doc: 'Starts the dependency before a suite; must return, so daemons run in the background. `$ASSAY_RUN` is a writable directory for its sockets, data and logs.',
    multiline: true,
  }),
  launch_timeout: wholeNumber(
    `How many seconds the launch command may take; ${LAUNCH_SECONDS.defaultValue} by default.`,
    LAUNCH_SECONDS.min,
    LAUNCH_SECONDS.max,
  ),
  environment: optional({
    doc: 'Variables for suites and compiles that use the dependency: lines of `NAME=value`. `$PREFIX` in a value is its prefix and `$ASSAY_RUN` the directory of its daemon; nothing else is replaced. A variable of the suite with the same name wins.',
    example: 'PGHOST=$ASSAY_RUN',
    multiline: true,
    check: checkEnvironment,
  }),
  library_path: flag(
    'Whether its libraries are on LD_LIBRARY_PATH; true by default. The log of a compile names programs of the image that would load them.',
  ),
  recompile: flag('Whether to compile it again when the artifact of a related dependency changes.'),
  description: optional({ doc: 'Arbitrary text.', example: 'Compression', multiline: true }),
  image: imageField('The image to compile in instead of the default one:'),
  [RELATED]: ids('Dependencies whose artifacts the compile and the suites need too.'),
} as const;

/** Refuses a dependency that relates to itself, a cycle, and duplicates. */
function checkRelated(db: Db, related: bigint[] = [], ownId?: bigint): Errors {
  const circular = ownId !== undefined && related.some(id => relatesTo(db, id, ownId));
  return circular || new Set(related).size < related.length ? { [RELATED]: ['invalid_format'] } : {};
}

/** A dependency may relate only to those that its owner can see, and to those that it relates to already. */
function findMissingRelated(
  { db, caller }: Pick<Call, 'db' | 'caller'>,
  related: bigint[] = [],
  own?: Dependency,
): string[] {
  const before = own ? listRelated(db, own.id).map(({ id }) => id) : [];
  const isMissing = (id: bigint) => !findVisibleDependency(db, caller.accountId, id) && !before.includes(id);
  return related.some(isMissing) ? [RELATED] : [];
}

/** Passes any command if the prefix itself is invalid. */
const fits = (command: string, prefix: string, errors: Readonly<Errors>) =>
  errors.prefix !== undefined || !checkCommand(command, prefix);

/** Other accounts may use a shared dependency, but not see how it was compiled. */
export function requireOwner({ caller, dependency }: { caller: Caller; dependency: Dependency }): void {
  if (dependency.ownerId !== caller.accountId) throw refusal('not_found');
}

/** The record of a dependency, with its position in the queue while it waits. */
export const present = (call: Pick<Services, 'db' | 'waitingCompile'>, dependency: Dependency) =>
  dependencyRecord(call.db, dependency, call.waitingCompile(dependency));

/** Stores the upload on disk. Throws its failures as refusals of the field `archive`. */
async function receive(
  body: AsyncIterable<Uint8Array>,
  dataDirectory: string,
  hasFreeSpace: () => boolean,
): Promise<ReceivedArchive> {
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
    summary: "Lists the caller's dependencies, or with `shared=true` those that other accounts share",
    access: 'users',
    scope: 'dependencies',
    // The caller does not pay for what other accounts share.
    allowUnpaid: url => /^(true|1)$/.test(url.searchParams.getAll('shared').at(-1) ?? ''),
    query: { shared: flag('List what other accounts share instead.') },
    response: { list: dependencyShape },
    handle: call => {
      const { db, caller, page, query } = call;
      const list = query.shared ? listSharedDependencies : listOwnDependencies;
      return listing(page, list(db, caller.accountId, page), dependency => present(call, dependency));
    },
  }),
  create: endpoint({
    method: 'POST',
    path: '/dependencies',
    summary: 'Creates a dependency, which then waits for its archive',
    access: 'users',
    scope: 'dependencies',
    fields,
    checkTogether: (values, call, errors) => {
      const { name, command, prefix = DEFAULT_PREFIX } = values;
      return {
        ...(name !== undefined &&
          isDependencyNameTaken(call.db, call.caller.accountId, name) && { name: ['already_exists'] }),
        ...(command !== undefined && !fits(command, prefix, errors) && { command: ['invalid_format'] }),
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
            launchSeconds: values.launch_timeout ?? LAUNCH_SECONDS.defaultValue,
            environment: values.environment ?? '',
            libraryPath: values.library_path ?? true,
            recompile: values.recompile ?? false,
            image: values.image ?? null,
          },
          values[RELATED] ?? [],
        ),
      ),
  }),
  get: endpoint({
    method: 'GET',
    path: '/dependencies/:dependency_id',
    summary: "Returns one of the caller's dependencies, or a shared one",
    access: 'sees',
    scope: 'dependencies',
    response: { record: dependencyShape },
    handle: call => present(call, call.dependency),
  }),
  update: endpoint({
    method: 'PUT',
    path: '/dependencies/:dependency_id',
    summary:
      'Updates the fields that are sent. `launch_command`, `launch_timeout`, `environment` and `library_path` apply from the next build on; `command`, `prefix`, `source`, `image` and `related_dependencies[]` from the next compile on',
    access: 'users',
    scope: 'dependencies',
    fields,
    checkTogether: (values, call, errors) => {
      const { dependency } = call;
      const prefix = values.prefix === '' ? DEFAULT_PREFIX : (values.prefix ?? dependency.prefix);
      const command = values.command ?? dependency.command;
      const isChanged = values.command !== undefined || values.prefix !== undefined;
      return {
        ...(values.name !== undefined &&
          isDependencyNameTaken(call.db, dependency.ownerId, values.name, dependency) && {
            name: ['already_exists'],
          }),
        ...(isChanged && !fits(command, prefix, errors) && { command: ['invalid_format'] }),
        ...checkRelated(call.db, values[RELATED], dependency.id),
      };
    },
    findMissing: (values, call) => [
      ...findMissingRelated(call, values[RELATED], call.dependency),
      ...findMissingImage(values, call),
    ],
    response: { record: dependencyShape },
    handle: ({ values, ...call }) =>
      present(
        call,
        updateDependency(
          call.db,
          call.dependency,
          {
            ...(values.name !== undefined && { name: values.name }),
            ...(values.description !== undefined && { description: values.description }),
            ...(values.command !== undefined && { command: values.command }),
            ...(values.prefix !== undefined && {
              prefix: values.prefix === '' ? DEFAULT_PREFIX : values.prefix,
            }),
            ...(values.source !== undefined && { source: values.source }),
            ...(values.launch_command !== undefined && { launchCommand: values.launch_command }),
            ...(values.launch_timeout !== undefined && { launchSeconds: values.launch_timeout }),
            ...(values.environment !== undefined && { environment: values.environment }),
            ...(values.library_path !== undefined && { libraryPath: values.library_path }),
            ...(values.recompile !== undefined && { recompile: values.recompile }),
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
    summary: 'Uploads the archive of the source code and queues its compile',
    access: 'users',
    scope: 'dependencies',
    body: {
      description: 'A tar (plain, gzip, bzip2, xz or zstd) or zip archive, of any size.',
      content: { 'application/octet-stream': { type: 'string', format: 'binary' } },
      example: '-T zlib-1.3.1.tar.gz',
    },
    response: { record: uploadedDependencyShape, status: 202 },
    handle: async ({ db, dependency, dataDirectory, body, hasFreeSpace }) => {
      if (dependency.compileState === 'compiling' || !hasFreeSpace())
        throw refusal('resource_temporary_unavailable');
      const received = await receive(body, dataDirectory, hasFreeSpace);
      await keepSourceArchive(received.path, archivePath(dataDirectory, received.sha256));
      const uploaded = acceptArchive(db, dependency.id, {
        archiveHash: received.sha256,
        archiveContentType: received.contentType,
        archiveFileSize: received.sizeBytes,
      });
      // It was deleted meanwhile, or its compile started. The sweep removes the unused file.
      if (!uploaded)
        throw refusal(findDependency(db, dependency.id) ? 'resource_temporary_unavailable' : 'not_found');
      return presentUploadedDependency(uploaded);
    },
  }),
  compile: endpoint({
    method: 'POST',
    path: '/dependencies/:dependency_id/compile',
    summary: 'Queues a compile of the archive that is there',
    access: 'users',
    scope: 'dependencies',
    fields: {
      force: flag(
        'Compile it even if an earlier compile with the same archive and instructions can be used.',
      ),
    },
    response: { record: dependencyShape },
    handle: call => {
      const { db, dependency, values } = call;
      if (dependency.archiveHash === null) throw refusal('is_blank', 'archive');
      const enqueued = enqueueCompile(db, dependency, { forced: values.force ?? false });
      if (!enqueued)
        throw refusal(findDependency(db, dependency.id) ? 'resource_temporary_unavailable' : 'not_found');
      return present(call, enqueued);
    },
  }),
  compileDependents: endpoint({
    method: 'POST',
    path: '/dependencies/:dependency_id/compile_dependents',
    summary:
      "Compiles the caller's dependencies again that relate to this one, directly or transitively, and are outdated. Returns them in the order of their compiles",
    access: 'users',
    scope: 'dependencies',
    response: { list: dependencyShape, paged: false },
    handle: call => compileDependents(call.db, call.dependency).map(one => present(call, one)),
  }),
  cancel: endpoint({
    method: 'POST',
    path: '/dependencies/:dependency_id/cancel',
    summary: 'Cancels an unfinished compile',
    access: 'users',
    scope: 'dependencies',
    response: { record: dependencyShape },
    handle: call => {
      const { db, dependency } = call;
      cancelCompile(db, dependency);
      return present(call, findDependency(db, dependency.id) ?? dependency);
    },
  }),
  share: endpoint({
    method: 'POST',
    path: '/dependencies/:dependency_id/share',
    summary: 'Makes a compiled dependency usable by every account',
    access: 'users',
    scope: 'dependencies',
    response: { record: dependencyShape },
    handle: call => {
      const { db, dependency } = call;
      if (!dependency.shared && dependency.artifactHash === null)
        throw refusal('resource_temporary_unavailable');
      return present(call, setShared(db, dependency, true));
    },
  }),
  unshare: endpoint({
    method: 'POST',
    path: '/dependencies/:dependency_id/unshare',
    summary: 'Stops sharing a dependency; accounts that use it keep the version that they have',
    access: 'users',
    scope: 'dependencies',
    response: { record: dependencyShape },
    handle: call => present(call, setShared(call.db, call.dependency, false)),
  }),
  log: endpoint({
    method: 'GET',
    path: '/dependencies/:dependency_id/log',
    summary: 'Returns the log of the last compile; supports Range',
    access: 'sees',
    scope: 'dependencies',
    response: { media: 'text/plain', description: 'The log, byte for byte.', ranges: true },
    handle: call => {
      requireOwner(call);
      return respondLog(call.request, dependencyLogPath(call.dataDirectory, call.dependency.id));
    },
  }),
};
