// Masks secrets in a stream of log bytes with an Aho–Corasick automaton, so that neither chunk boundaries nor hostile
// output matter.

type Mask = {
  /** Returns the bytes that are safe to show now. They may share memory with the input, so do not write to either. */
  push(bytes: Buffer): Buffer;
  /** Returns the bytes still held back, after the last push. The next push begins another text. */
  end(): Buffer;
  /** The number of input bytes held back. A new mask that is fed from that position on continues exactly here. */
  readonly heldBytes: number;
};

const minSecretCharacters = 8;
const replacement = Buffer.from('***');
const nothing = Buffer.alloc(0);

/** Overlapping matches become one `***`. The output does not depend on how the input is split into chunks. */
export function createMask(values: readonly string[]): Mask {
  const secrets = secretsIn(values);
  if (secrets.length === 0) return { push: bytes => bytes, end: () => nothing, heldBytes: 0 };
  const { child, sibling, byteOf, fail, depth, matchBytes, pathOf, fromRoot } = buildAutomaton(secrets);
  const skip = buildSkip(secrets);

  let state = 0;
  let pushedBytes = 0;
  let shownBytes = 0;
  // Matches not yet shown, in order, as offsets into the whole stream.
  const found: Region[] = [];

  /** Returns the output up to `until`. `held` ends at offset `base`, where `bytes` begins. */
  function show(held: Buffer, bytes: Buffer, base: number, until: number): Buffer {
    const shown: Buffer[] = [];
    const copy = (start: number, end: number) => {
      if (start < base)
        shown.push(held.subarray(start - base + held.length, Math.min(end, base) - base + held.length));
      if (end > base) shown.push(bytes.subarray(Math.max(start, base) - base, end - base));
    };
    let at = shownBytes;
    let closed = 0;
    for (; closed < found.length && found[closed]!.end <= until; closed++) {
      const { start, end } = found[closed]!;
      if (start > at) copy(at, start);
      shown.push(replacement);
      at = end;
    }
    found.splice(0, closed);
    const next = found[0];
    // A region that may still grow is held back: no checkpoint may lie inside it.
    const limit = next ? Math.min(next.start, until) : until;
    if (limit > at) copy(at, limit);
    shownBytes = Math.max(at, limit);
    return shown.length === 1 ? shown[0]! : Buffer.concat(shown);
  }

  function push(bytes: Buffer): Buffer {
    const base = pushedBytes;
    const length = bytes.length;
    // The bytes held back are exactly the path from the root of the automaton to its state.
    const held = pathOf(state);
    let node = state;
    let at = 0;
    while (at < length) {
      if (node === 0) {
        at = skip(bytes, at);
        while (at < length && fromRoot[bytes[at]!] === 0) at++;
        if (at === length) break;
      }
      const byte = bytes[at++]!;
      let next = 0;
      while (node !== 0) {
        next = child[node]!;
        while (next !== 0 && byteOf[next] !== byte) next = sibling[next]!;
        if (next !== 0) break;
        node = fail[node]!;
      }
      node = next === 0 ? fromRoot[byte]! : next;
      if (matchBytes[node] !== 0) {
        addRegion(found, base + at - matchBytes[node]!, base + at);
        // No longer secret continues from here. Only a suffix of this one may start another.
        if (child[node] === 0) node = fail[node]!;
      }
    }
    state = node;
    pushedBytes += length;
    return show(held, bytes, base, pushedBytes - depth[node]!);
  }

  return {
    push,
    end() {
      if (shownBytes === pushedBytes) return nothing;
      const held = pathOf(state);
      state = 0;
      return show(held, nothing, pushedBytes, pushedBytes);
    },
    get heldBytes() {
      return pushedBytes - shownBytes;
    },
  };
}

/** Masks a complete text. */
export function maskText(values: readonly string[], text: string): string {
  const mask = createMask(values);
  return Buffer.concat([mask.push(Buffer.from(text)), mask.end()]).toString();
}

type Region = { start: number; end: number };

function addRegion(found: Region[], start: number, end: number): void {
  let from = start;
  while (found.length > 0 && found.at(-1)!.end > from) from = Math.min(from, found.pop()!.start);
  found.push({ start: from, end });
}

/** The byte strings to mask, longest first: each value, and each line of a value with several lines. */
function secretsIn(values: readonly string[]): Buffer[] {
  const texts = new Set<string>();
  for (const value of values) {
    if (!isLongEnough(value)) continue;
    // Line breaks around a value are not secret. Leaving them out keeps the lines of the log intact.
    const lines = value.split(/\r\n|\r|\n/);
    const first = lines.find(line => line !== '') ?? '';
    const last = lines.findLast(line => line !== '') ?? '';
    const trimmed = value.slice(value.indexOf(first), value.lastIndexOf(last) + last.length);
    texts.add(isLongEnough(trimmed) ? trimmed : value);
    for (const line of lines) if (isLongEnough(line)) texts.add(line);
  }
  return [...texts].map(text => Buffer.from(text)).sort((a, b) => b.length - a.length);
}

function isLongEnough(text: string): boolean {
  let characters = 0;
  for (const _ of text) if (++characters === minSecretCharacters) return true;
  return false;
}

/** Nodes are numbers; 0 is the root. Children are linked lists: a table of 256 entries per node would be huge for a long key. */
function buildAutomaton(secrets: Buffer[]) {
  const size = secrets.reduce((sum, secret) => sum + secret.length, 1);
  const child = new Int32Array(size);
  const sibling = new Int32Array(size);
  const byteOf = new Uint8Array(size);
  const fail = new Int32Array(size);
  const depth = new Int32Array(size);
  const matchBytes = new Int32Array(size);
  const secretOf = new Int32Array(size);
  const fromRoot = new Int32Array(256);
  let nodes = 1;

  const childOf = (node: number, byte: number): number => {
    if (node === 0) return fromRoot[byte]!;
    let next = child[node]!;
    while (next !== 0 && byteOf[next] !== byte) next = sibling[next]!;
    return next;
  };

  secrets.forEach((secret, index) => {
    let node = 0;
    for (const byte of secret) {
      let next = childOf(node, byte);
      if (next === 0) {
        next = nodes++;
        byteOf[next] = byte;
        depth[next] = depth[node]! + 1;
        secretOf[next] = index;
        sibling[next] = child[node]!;
        child[node] = next;
        if (node === 0) fromRoot[byte] = next;
      }
      node = next;
    }
    matchBytes[node] = secret.length;
  });

  const queue = new Int32Array(nodes);
  let filled = 1;
  for (let taken = 0; taken < filled; taken++) {
    const node = queue[taken]!;
    for (let next = child[node]!; next !== 0; next = sibling[next]!) {
      let back = fail[node]!;
      while (back !== 0 && childOf(back, byteOf[next]!) === 0) back = fail[back]!;
      fail[next] = node === 0 ? 0 : childOf(back, byteOf[next]!);
      if (matchBytes[next] === 0) matchBytes[next] = matchBytes[fail[next]!]!;
      queue[filled++] = next;
    }
  }
  const pathOf = (node: number): Buffer =>
    node === 0 ? nothing : secrets[secretOf[node]!]!.subarray(0, depth[node]);
  return { child, sibling, byteOf, fail, depth, matchBytes, pathOf, fromRoot };
}

const maxWindow = 32;

/**
 * Skips bytes at which no secret can begin, as Wu and Manber do: the last two bytes of a window as long as the shortest
 * secret determine how far it may advance.
 */
function buildSkip(secrets: Buffer[]): (bytes: Buffer, from: number) => number {
  const window = Math.min(maxWindow, ...secrets.map(secret => secret.length));
  const shifts = new Uint8Array(0x10000).fill(window - 1);
  for (const secret of secrets) {
    for (let end = 1; end < window; end++) {
      const pair = (secret[end - 1]! << 8) | secret[end]!;
      shifts[pair] = Math.min(shifts[pair]!, window - 1 - end);
    }
  }
  return (bytes, from) => {
    let last = from + window - 1;
    while (last < bytes.length) {
      const shift = shifts[(bytes[last - 1]! << 8) | bytes[last]!]!;
      if (shift === 0) break;
      last += shift;
    }
    return Math.min(last - window + 1, bytes.length);
  };
}
