// A minimal Git LFS server over SSH, for downloads only: `git-lfs-transfer PATH download`, with the objects in
// PATH/lfs/objects, named by their hash.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const [, , repository = '', operation = ''] = process.argv;
if (operation !== 'download') process.exit(1);

const packet = (data: Buffer | string) => {
  const bytes = Buffer.from(data);
  return Buffer.concat([Buffer.from((bytes.length + 4).toString(16).padStart(4, '0')), bytes]);
};
const PACKET_BYTES = 60_000;
const FLUSH = Buffer.from('0000');
const DELIMITER = Buffer.from('0001');
const send = (...pieces: (Buffer | string)[]) =>
  process.stdout.write(
    Buffer.concat(pieces.map(part => (typeof part === 'string' ? packet(`${part}\n`) : part))),
  );

function contentOf(oid: string): Buffer | undefined {
  try {
    return readFileSync(join(repository, 'lfs/objects', oid));
  } catch {
    return undefined;
  }
}

const packets = (content: Buffer) =>
  Array.from({ length: Math.ceil(content.length / PACKET_BYTES) }, (_, index) =>
    packet(content.subarray(index * PACKET_BYTES, (index + 1) * PACKET_BYTES)),
  );

function answer(lines: string[]): void {
  const [command = ''] = lines;
  if (command.startsWith('version')) send('status 200', FLUSH);
  else if (command === 'batch') {
    const requested = lines.filter(line => /^[0-9a-f]{64} \d+/.test(line));
    const known = requested.map(line => `${line} ${contentOf(line.slice(0, 64)) ? 'download' : 'noop'}`);
    send('status 200', DELIMITER, ...known, FLUSH);
  } else if (command.startsWith('get-object ')) {
    const content = contentOf(command.slice('get-object '.length));
    if (content) send('status 200', `size=${content.length}`, DELIMITER, ...packets(content), FLUSH);
    else send('status 404', DELIMITER, 'not found', FLUSH);
  } else if (command === 'quit') {
    send('status 200', FLUSH);
    process.exitCode = 0;
    process.stdin.destroy();
  } else send('status 400', DELIMITER, 'unknown command', FLUSH);
}

send('version=1', FLUSH);
let pending = Buffer.alloc(0);
let lines: string[] = [];
process.stdin.on('data', (chunk: Buffer) => {
  pending = Buffer.concat([pending, chunk]);
  while (pending.length >= 4) {
    const length = Number.parseInt(pending.subarray(0, 4).toString(), 16);
    if (length > 3 && pending.length < length) return;
    if (length > 3) lines.push(pending.subarray(4, length).toString().trimEnd());
    pending = pending.subarray(Math.max(length, 4));
    if (length === 0) {
      const requested = lines;
      lines = [];
      answer(requested);
    }
  }
});
