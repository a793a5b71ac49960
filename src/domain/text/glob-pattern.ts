// How a glob is read: `*`, `?` and `[…]`, everything else an ordinary character. Matching is left to glob.ts.

/**
 * The characters that one place of a glob takes, by code point: those from an even edge up to the next odd one,
 * or where `negated` all others. Edges go up, so that a search in halves finds any character.
 */
export type Place = { negated: boolean; edges: readonly number[] };

const anyOne: Place = { negated: true, edges: [] };
const code = { star: 0x2a, question: 0x3f, open: 0x5b, close: 0x5d, bang: 0x21, caret: 0x5e, dash: 0x2d };

/** The number of edges at or below the character: odd inside of a range. */
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

export function takes({ negated, edges }: Place, character: number): boolean {
  return ((edgesUpTo(edges, character) & 1) === 1) !== negated;
}

/** The one character that a place takes, if it is one. */
export function onlyCharacter({ negated, edges }: Place): number | undefined {
  return !negated && edges.length === 2 && edges[1] === edges[0]! + 1 ? edges[0] : undefined;
}

const only = (character: number): Place => ({ negated: false, edges: [character, character + 1] });

/** What is between the stars, with what is before the first and behind the last; without a star one piece. */
export function parseGlob(pattern: string): Place[][] {
  const characters = Array.from(pattern, character => character.codePointAt(0)!);
  // Found once: without it a pattern of many open brackets would be searched to its end for each of them.
  const lastClose = characters.lastIndexOf(code.close);
  const pieces: Place[][] = [[]];
  let at = 0;
  while (at < characters.length) {
    const character = characters[at++]!;
    const piece = pieces.at(-1)!;
    if (character === code.star) {
      pieces.push([]);
    } else if (character === code.question) {
      piece.push(anyOne);
    } else if (character === code.open && at < lastClose) {
      const set = readSet(characters, at);
      piece.push(set ? set.place : only(character));
      if (set) at = set.end;
    } else {
      piece.push(only(character));
    }
  }
  return pieces;
}

/** `]` directly after the opening is an ordinary member; a bracket that never closes is an ordinary character. */
function readSet(pattern: number[], start: number): { place: Place; end: number } | undefined {
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
  return { place: { negated, edges: edgesOf(ranges) }, end: close + 1 };
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
