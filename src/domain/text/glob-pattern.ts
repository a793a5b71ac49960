// Parses a glob: `*`, `?` and `[…]` are special, everything else is an ordinary character. glob.ts does the matching.

/**
 * The characters that one position of a glob accepts. `edges` are sorted code points: a range starts at each even index
 * and ends before the next edge. `negated` accepts all other characters.
 */
export type CharacterSet = { negated: boolean; edges: readonly number[] };

const anyCharacter: CharacterSet = { negated: true, edges: [] };
const code = { star: 0x2a, question: 0x3f, open: 0x5b, close: 0x5d, bang: 0x21, caret: 0x5e, dash: 0x2d };

/** Binary search for the number of edges at or below the character, which is odd inside a range. */
export function edgesUpTo(
  edges: { readonly length: number; [at: number]: number },
  character: number,
): number {
  let low = 0;
  let high = edges.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (edges[middle]! <= character) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function accepts({ negated, edges }: CharacterSet, character: number): boolean {
  return ((edgesUpTo(edges, character) & 1) === 1) !== negated;
}

/** The character of a set that accepts exactly one. */
export function onlyCharacter({ negated, edges }: CharacterSet): number | undefined {
  return !negated && edges.length === 2 && edges[1] === edges[0]! + 1 ? edges[0] : undefined;
}

const only = (character: number): CharacterSet => ({ negated: false, edges: [character, character + 1] });

/** The segments before, between and after the stars: always one more than there are stars. */
export function parseGlob(pattern: string): CharacterSet[][] {
  const characters = Array.from(pattern, character => character.codePointAt(0)!);
  // Found once: otherwise each of many open brackets would search the pattern to its end.
  const lastClose = characters.lastIndexOf(code.close);
  const segments: CharacterSet[][] = [[]];
  let at = 0;
  while (at < characters.length) {
    const character = characters[at++]!;
    const segment = segments.at(-1)!;
    if (character === code.star) {
      segments.push([]);
    } else if (character === code.question) {
      segment.push(anyCharacter);
    } else if (character === code.open && at < lastClose) {
      const set = readSet(characters, at);
      segment.push(set ? set.set : only(character));
      if (set) at = set.end;
    } else {
      segment.push(only(character));
    }
  }
  return segments;
}

/** `]` directly after the opening is an ordinary member; a bracket that never closes is an ordinary character. */
function readSet(pattern: number[], start: number): { set: CharacterSet; end: number } | undefined {
  let at = start;
  const negated = pattern[at] === code.bang || pattern[at] === code.caret;
  if (negated) at++;
  const close = pattern.indexOf(code.close, at + 1);
  if (close < 0) return undefined;
  const ranges: [low: number, high: number][] = [];
  while (at < close) {
    const low = pattern[at]!;
    const isRange = pattern[at + 1] === code.dash && at + 2 < close;
    ranges.push([low, isRange ? pattern[at + 2]! : low]);
    at += isRange ? 3 : 1;
  }
  return { set: { negated, edges: edgesOf(ranges) }, end: close + 1 };
}

function edgesOf(ranges: [low: number, high: number][]): number[] {
  const edges: number[] = [];
  for (const [low, high] of ranges.filter(([low, high]) => low <= high).sort(([a], [b]) => a - b)) {
    const last = edges.at(-1);
    if (last === undefined || low > last) edges.push(low, high + 1);
    else edges[edges.length - 1] = Math.max(last, high + 1);
  }
  return edges;
}
