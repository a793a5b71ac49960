// A multipart form as it comes, for files of any size: the fields before the first file are read, the file itself is
// handed on piece by piece and never held whole. Small forms are read by api/body.ts.

import { refusal } from '../../domain/refusal.ts';

const MAX_HEAD_BYTES = 8 * 1024;
const MAX_FIELD_BYTES = 64 * 1024;
const MAX_FIELDS = 20;

export type StreamedForm = {
  fields: Map<string, string>;
  /** The first file; its stream must be read for the request to go on. Undefined where the form has none. */
  file: { fieldName: string; fileName: string; bytes: AsyncGenerator<Uint8Array, void> } | undefined;
};

const malformed = () => refusal('invalid_format');
const headEnd = Buffer.from('\r\n\r\n');

export async function readStreamedForm(request: Request): Promise<StreamedForm> {
  const [, quoted, bare] =
    /^multipart\/form-data\s*;.*boundary=(?:"([^"]{1,200})"|([^\s";]{1,200}))/i.exec(
      request.headers.get('content-type') ?? '',
    ) ?? [];
  const boundary = quoted ?? bare;
  if (boundary === undefined || !request.body) throw malformed();
  const delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1');
  const source = createSource(request.body.getReader());
  const fields = new Map<string, string>();
  // The first delimiter has no line before it.
  source.unread(Buffer.from('\r\n'));
  await source.readUntil(delimiter, MAX_HEAD_BYTES);
  for (let count = 0; count < MAX_FIELDS; count += 1) {
    const mark = await source.readExactly(2);
    if (mark.toString('latin1') === '--') return { fields, file: undefined };
    source.unread(mark);
    const head = (await source.readUntil(headEnd, MAX_HEAD_BYTES)).toString('utf8');
    const name = /^content-disposition:[^\r\n]*;\s*name="([^"]*)"/im.exec(head)?.[1];
    const fileName = /^content-disposition:[^\r\n]*;\s*filename="([^"]*)"/im.exec(head)?.[1];
    if (name === undefined) throw malformed();
    if (fileName !== undefined)
      return { fields, file: { fieldName: name, fileName, bytes: source.streamUntil(delimiter) } };
    fields.set(name, (await source.readUntil(delimiter, MAX_FIELD_BYTES)).toString('utf8'));
  }
  throw malformed();
}

type Reader = { read(): Promise<{ done: boolean; value?: Uint8Array | undefined }> };

function createSource(reader: Reader) {
  let held: Buffer = Buffer.alloc(0);

  /** False at the end of the body. */
  async function more(): Promise<boolean> {
    const { done, value } = await reader.read();
    if (done || !value) return false;
    held =
      held.length === 0
        ? Buffer.from(value.buffer, value.byteOffset, value.length)
        : Buffer.concat([held, value]);
    return true;
  }
  const take = (length: number): Buffer => {
    const taken = held.subarray(0, length);
    held = held.subarray(length);
    return taken;
  };

  return {
    unread(bytes: Buffer): void {
      held = Buffer.concat([bytes, held]);
    },
    async readExactly(length: number): Promise<Buffer> {
      while (held.length < length) if (!(await more())) throw malformed();
      return take(length);
    },
    /** What stands before `end`, which is passed over. */
    async readUntil(end: Buffer, maxBytes: number): Promise<Buffer> {
      for (;;) {
        const at = held.indexOf(end);
        if (at > maxBytes || (at < 0 && held.length > maxBytes + end.length)) throw malformed();
        if (at >= 0) {
          const found = take(at);
          take(end.length);
          return found;
        }
        if (!(await more())) throw malformed();
      }
    },
    /** The same in pieces. A body that ends before `end` does is broken off. */
    async *streamUntil(end: Buffer): AsyncGenerator<Uint8Array, void> {
      for (;;) {
        const at = held.indexOf(end);
        if (at >= 0) {
          if (at > 0) yield take(at);
          // What follows is of no use, but must be read, or the sender would wait for ever.
          do held = Buffer.alloc(0);
          while (await more());
          return;
        }
        // What could be the beginning of the end waits for what comes next.
        const sure = held.length - end.length + 1;
        if (sure > 0) yield take(sure);
        if (!(await more())) throw new Error('the body ended inside a file');
      }
    },
  };
}
