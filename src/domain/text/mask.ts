// Takes secrets out of a log as its bytes stream by: an Aho–Corasick automaton over the raw bytes, so that neither
// chunk borders nor hostile output matter. Which values are secret, and where the bytes go, is left to the runner.

export type Mask = {
  /** What may be shown now. It may share memory with what was pushed, so neither may be written to afterwards. */
  push(bytes: Buffer): Buffer;
  /** Lets go of what is still held: no more bytes will come. */
  end(): Buffer;
  /** Raw bytes pushed that nothing shown stands for yet; a new mask fed from there on continues exactly here. */
  readonly heldBytes: number;
};

const shortestSecret = 8;
const replacement = Buffer.from('***');

/** Occurrences that overlap become one `***`; the output depends on the bytes alone, never on how they were cut. */
export function createMask(values: readonly string[]): Mask {
  const secrets = secretsIn(values);
  if (secrets.length === 0) return { push: bytes => bytes, end: () => Buffer.alloc(0), heldBytes: 0 };
  const { child, sibling, byteOf, fail, depth, matchBytes, pathOf, fromRoot } = buildAutomaton(secrets);
  const skip = buildSkip(secrets);

  let state = 0;
  let pushedBytes = 0;
  let shownUntil = 0;
  // What is found and not yet shown, in order, as offsets into the whole stream.
  const found: Region[] = [];

  /** Shows what lies before `until`: `held` ends at `base`, and `bytes` begins there. */
  function show(held: Buffer, bytes: Buffer, base: number, until: number): Buffer {
    const shown: Buffer[] = [];
    const copy = (start: number, end: number) => {
      if (start < base)
        shown.push(held.subarray(start - base + held.length, Math.min(end, base) - base + held.length));
      if (end > base) shown.push(bytes.subarray(Math.max(start, base) - base, end - base));
    };
    let at = shownUntil;
    let closed = 0;
    for (; closed < found.length && found[closed]!.end <= until; closed++) {
      const { start, end } = found[closed]!;
      if (start > at) copy(at, start);
      shown.push(replacement);
      at = end;
    }
    found.splice(0, closed);
    const next = found[0];
    // A region that is still open is not shown: a checkpoint taken now must not lie inside it.
    const limit = next ? Math.min(next.start, until) : until;
    if (limit > at) copy(at, limit);
    shownUntil = Math.max(at, limit);
    return shown.length === 1 ? shown[0]! : Buffer.concat(shown);
  }

  function push(bytes: Buffer): Buffer {
    const base = pushedBytes;
    const length = bytes.length;
    // The bytes held are, by what the automaton means, the way from its root to where it stands.
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
        // Nothing is longer than this secret: only its own ending may still be the beginning of another.
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
      const held = pathOf(state);
      state = 0;
      return show(held, Buffer.alloc(0), pushedBytes, pushedBytes);
    },
    get heldBytes() {
      return pushedBytes - shownUntil;
    },
  };
}

/** A text that is there as a whole, as lines of the service are. */
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

/** The values that are masked, longest first; of a value with several lines each line too. */
function secretsIn(values: readonly string[]): Buffer[] {
  const texts = new Set<string>();
  for (const value of values) {
    if (!isLongEnough(value)) continue;
    // The line break at the end of a value is no secret, and without it a log keeps its lines.
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
  for (const _ of text) if (++characters === shortestSecret) return true;
  return false;
}

/** Nodes are numbers, 0 the root. Children hang in lists: a table of 256 a node would be huge for a long key. */
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
  const pathOf = (node: number): Buffer => secrets[secretOf[node]!]!.subarray(0, depth[node]);
  return { child, sibling, byteOf, fail, depth, matchBytes, pathOf, fromRoot };
}

const longestWindow = 32;

/**
 * From a place where nothing has begun, leaps over bytes at which no secret can begin: the pair of bytes at the end
 * of a window as long as the shortest secret tells how far (as Wu and Manber do).
 */
function buildSkip(secrets: Buffer[]): (bytes: Buffer, from: number) => number {
  const window = Math.min(longestWindow, ...secrets.map(secret => secret.length));
  const leaps = new Uint8Array(0x10000).fill(window - 1);
  for (const secret of secrets) {
    for (let end = 1; end < window; end++) {
      const pair = (secret[end - 1]! << 8) | secret[end]!;
      leaps[pair] = Math.min(leaps[pair]!, window - 1 - end);
    }
  }
  return (bytes, from) => {
    let last = from + window - 1;
    while (last < bytes.length) {
      const leap = leaps[(bytes[last - 1]! << 8) | bytes[last]!]!;
      if (leap === 0) break;
      last += leap;
    }
    return Math.min(last - window + 1, bytes.length);
  };
}
