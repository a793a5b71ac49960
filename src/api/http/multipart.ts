// Reads a multipart form part by part as it arrives. A file of any size is streamed and never kept in memory.

import { refusal } from '../../domain/refusal.ts';

const MAX_HEAD_BYTES = 8 * 1024;
const MAX_UPLOAD_FIELDS = 20;
const MAX_UPLOAD_FIELD_BYTES = 64 * 1024;

type Chunks = AsyncGenerator<Buffer, void>;
type Part = { name: string; isFile: boolean; chunks: Chunks };

type UploadForm = {
  fields: Map<string, string>;
  /** The first file; undefined if there is none. Read its bytes, or the request does not complete. */
  file: { fieldName: string; bytes: Chunks } | undefined;
};

const malformed = () => refusal('invalid_format');

/** Yields the parts in order. Requesting the next part skips unread chunks. */
export async function* readParts(
  contentType: string | null,
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<Part, void> {
  const [, quoted, bare] = /;\s*boundary=(?:"([^"]{1,200})"|([^\s";]{1,200}))/i.exec(contentType ?? '') ?? [];
  const boundary = quoted ?? bare;
  if (boundary === undefined) throw malformed();
  const delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1');
  const source = body[Symbol.asyncIterator]();
  // Only the first delimiter has no line break before it.
  let buffered: Buffer = Buffer.from('\r\n');

  async function readMore(): Promise<void> {
    const { done, value } = await source.next();
    if (done) throw malformed();
    buffered = Buffer.concat([buffered, value]);
  }

  function take(length: number): Buffer {
    const taken = buffered.subarray(0, length);
    buffered = buffered.subarray(length);
    return taken;
  }

  async function* chunksUntil(end: Buffer): Chunks {
    let at = buffered.indexOf(end);
    for (; at < 0; at = buffered.indexOf(end)) {
      // The last bytes may be the beginning of `end`.
      const certain = buffered.length - end.length + 1;
      if (certain > 0) yield take(certain);
      await readMore();
    }
    const last = take(at);
    take(end.length);
    yield last;
  }

  await readWhole(chunksUntil(delimiter), MAX_HEAD_BYTES);
  for (;;) {
    while (buffered.length < 2) await readMore();
    if (buffered.toString('latin1', 0, 2) === '--') break;
    const head = await readWhole(chunksUntil(Buffer.from('\r\n\r\n')), MAX_HEAD_BYTES);
    const { name, filename } = dispositionOf(head.toString());
    if (!name || head.includes(delimiter)) throw malformed();
    const chunks = chunksUntil(delimiter);
    // Browsers escape these three characters in a name.
    const plainName = name.replaceAll('%22', '"').replaceAll('%0D', '\r').replaceAll('%0A', '\n');
    yield { name: plainName, isFile: filename !== undefined, chunks };
    for await (const _ of chunks);
  }
  // Drain the rest, or the client would wait.
  while (!(await source.next()).done);
}

export async function readWhole(chunks: Chunks, maxBytes: number): Promise<Buffer> {
  const read: Buffer[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    read.push(chunk);
    size += chunk.length;
    if (size > maxBytes) throw malformed();
  }
  return Buffer.concat(read, size);
}

/** The parameters of a part: quoted, as browsers send them, or bare tokens, as RFC 7578 allows. */
function dispositionOf(head: string): { name?: string; filename?: string } {
  const disposition = /^content-disposition:\s*form-data\s*((?:;[^\r\n]*)?)$/im.exec(head)?.[1] ?? '';
  const parameters = disposition.matchAll(/;\s*([\w*-]+)=(?:"([^"]*)"|([^\s;"]+))/g);
  return Object.fromEntries(
    [...parameters].map(([, key, quoted, bare]) => [key?.toLowerCase(), quoted ?? bare]),
  );
}

/** The fields before the first file, and that file as it arrives. */
export async function readUpload(request: Request): Promise<UploadForm> {
  if (!request.body) throw malformed();
  const fields = new Map<string, string>();
  const parts = readParts(request.headers.get('content-type'), request.body);
  for (let next = await parts.next(); !next.done; next = await parts.next()) {
    const { name, isFile, chunks } = next.value;
    if (isFile) return { fields, file: { fieldName: name, bytes: passOn(chunks, parts) } };
    if (fields.size === MAX_UPLOAD_FIELDS) throw malformed();
    fields.set(name, (await readWhole(chunks, MAX_UPLOAD_FIELD_BYTES)).toString());
  }
  return { fields, file: undefined };
}

async function* passOn(file: Chunks, rest: AsyncIterable<Part>): Chunks {
  yield* file;
  for await (const _ of rest);
}
