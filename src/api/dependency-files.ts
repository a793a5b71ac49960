// Endpoints for what is in the artifact of a dependency. Everyone who sees a dependency may read it: suites can do so too.

import { access } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { dependencyFileShape, presentDependencyFile } from '../contract/records/dependency-file.ts';
import type { ArtifactEntry } from '../domain/artifact-entry.ts';
import { refusal } from '../domain/refusal.ts';
import { findArtifact } from '../store/artifacts.ts';
import type { ArtifactIndex, EntryOrder } from '../store/data/artifact-index.ts';
import { artifactPath } from '../store/data/paths.ts';
import type { Dependency } from '../store/dependencies.ts';
import { endpoint, Listing, type Services } from './endpoint.ts';
import { cursor, optional, PAGE_LIMIT, pageFields } from './fields.ts';
import { isNotModified } from './http/range.ts';
import { attachmentHeaders, respondContent } from './result/artifact-response.ts';

const DEPENDENCY = '/dependencies/:dependency_id';
const PATH_BYTES = 4096;

/** A file name may contain any character, also those that end a line. */
const pathField = (doc: string) => optional({ doc, example: 'lib', maxBytes: PATH_BYTES, multiline: true });

/** Without slashes at its ends, as records have it. */
export const plainPath = (path = '') => path.replace(/^\/+|\/+$/g, '');

type Call = Pick<Services, 'db' | 'dataDirectory' | 'artifactFiles'> & { dependency: Dependency };

function getArtifact({ db, dependency }: Call) {
  const artifact = dependency.artifactHash === null ? undefined : findArtifact(db, dependency.artifactHash);
  if (!artifact) throw refusal('not_found');
  return artifact;
}

/** The index of the dependency's artifact. It may have to be made, which takes long for a large artifact. */
export async function openFiles(call: Call): Promise<ArtifactIndex> {
  const index = await call.artifactFiles.openIndex(getArtifact(call).hash).catch(throwMissing);
  if (!index) throw refusal('resource_temporary_unavailable');
  return index;
}

/** The file may be gone although a row names it. */
function throwMissing(error: NodeJS.ErrnoException): never {
  throw error.code === 'ENOENT' ? refusal('not_found') : error;
}

/** A hard link is a name of another file. */
function getFile(index: ArtifactIndex, path: string): ArtifactEntry {
  const found = index.find(path);
  const file = found?.type === 'link' ? index.find(found.target ?? '') : found;
  if (file?.type !== 'file') throw refusal('not_found');
  return file;
}

export const dependencyFiles = {
  list: endpoint({
    method: 'GET',
    path: `${DEPENDENCY}/files`,
    summary: "Lists a directory of the dependency's artifact, with the sizes of everything in it",
    access: 'sees',
    scope: 'dependencies',
    query: {
      path: pathField('The directory, relative to the prefix; the prefix itself by default.'),
      sort: optional<EntryOrder>({
        doc: '`name`, the default, or `size`: the largest first.',
        oneOf: ['name', 'size'],
      }),
      after: cursor('Only entries after this one.'),
      limit: pageFields.limit,
    },
    response: { list: dependencyFileShape, paged: false },
    handle: async call => {
      const { path, sort = 'name', after, limit = PAGE_LIMIT.defaultValue } = call.query;
      using index = await openFiles(call);
      const directory = index.find(plainPath(path));
      if (directory?.type !== 'directory') throw refusal('not_found');
      const entries = index.list(directory, { order: sort, after, limit: limit + 1 });
      if (!entries) throw refusal('invalid_format', 'after');
      const shown = entries.slice(0, limit);
      const next = entries.length > limit ? shown.at(-1)?.id : undefined;
      const present = (entry: ArtifactEntry) => presentDependencyFile(plainPath(path), entry);
      return new Listing(shown.map(present), next, [], 'after');
    },
  }),
  download: endpoint({
    method: 'GET',
    path: `${DEPENDENCY}/artifact`,
    summary:
      "Returns the dependency's artifact as a tar whose names begin with the prefix, or with `path` one of its files",
    access: 'sees',
    scope: 'dependencies',
    query: { path: pathField('A file, relative to the prefix. Supports Range.') },
    response: {
      media: 'application/x-tar',
      orMedia: 'application/octet-stream',
      description: 'The tar, or the content of the file.',
      ranges: true,
      conditional: true,
    },
    handle: async call => {
      const path = plainPath(call.query.path);
      return path === '' ? respondTar(call) : respondFile(call, path);
    },
  }),
};

async function respondTar(call: Call & { request: Request }): Promise<Response> {
  const { request, dependency, artifactFiles, dataDirectory } = call;
  const artifact = getArtifact(call);
  await access(artifactPath(dataDirectory, artifact.hash)).catch(throwMissing);
  const headers = {
    ...attachmentHeaders(`${dependency.name.replaceAll('/', '-')}.tar`),
    'content-type': 'application/x-tar',
    etag: `"${artifact.hash}"`,
  };
  if (isNotModified(request, headers.etag)) return new Response(null, { status: 304, headers });
  const body = request.method === 'HEAD' ? null : Readable.toWeb(artifactFiles.openTar(artifact));
  return new Response(body as ReadableStream | null, { headers });
}

async function respondFile(call: Call & { request: Request }, path: string): Promise<Response> {
  const { hash } = getArtifact(call);
  using index = await openFiles(call);
  const file = getFile(index, path);
  return respondContent(call.request, {
    etag: `"${hash}-${file.id}"`,
    sizeBytes: file.sizeBytes,
    headers: attachmentHeaders(path),
    open: range => call.artifactFiles.openFile(hash, file, range),
  });
}
