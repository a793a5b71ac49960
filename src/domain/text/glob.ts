// Matches a value against a glob. Matching is case-sensitive, and `*` matches everything, `/` and newlines included. It
// never backtracks, because values may have megabytes and globs thousands of characters.

import { accepts, type CharacterSet, edgesUpTo, onlyCharacter, parseGlob } from './glob-pattern.ts';
import { compileSearch } from './text-search.ts';

/** A segment between two stars. All functions return an index into the value in UTF-16 units, or -1. */
type Segment = {
  /** Matches at `from` and returns where the match ends. */
  matchAt: (value: string, from: number) => number;
  /** Matches at the end of the value and returns where the match begins. */
  matchSuffix: (value: string) => number;
  /** Finds the first match at or after `from` and returns where it ends. */
  findFirst: (value: string, from: number) => number;
};

export function compileGlob(pattern: string): (value: string) => boolean {
  const sets = parseGlob(pattern);
  const minLength = sets.reduce((sum, segment) => sum + segment.length, 0);
  const [head, ...rest] = sets.map(compileSegment) as [Segment, ...Segment[]];
  const tail = rest.pop();
  if (!tail) return value => value.length >= minLength && head.matchAt(value, 0) === value.length;
  const middle = rest.filter((_, index) => sets[index + 1]!.length > 0);
  return value => {
    if (value.length < minLength) return false;
    let at = head.matchAt(value, 0);
    if (at < 0) return false;
    const end = tail.matchSuffix(value);
    if (end < at) return false;
    for (const segment of middle) {
      // The earliest match leaves the most for the other segments, so no other match needs to be tried.
      at = segment.findFirst(value, at);
      if (at < 0) return false;
    }
    return at <= end;
  };
}

function compileSegment(sets: CharacterSet[]): Segment {
  const characters = sets.map(onlyCharacter);
  return characters.every(isWhole)
    ? segmentOfText(characters.map(character => String.fromCodePoint(character)).join(''))
    : segmentOfSets(sets);
}

/** A text search would find a lone surrogate inside a pair, so such a segment is compared by code points. */
function isWhole(character: number | undefined): character is number {
  return character !== undefined && (character < 0xd800 || character > 0xdfff);
}

function segmentOfText(text: string): Segment {
  const search = compileSearch(text);
  return {
    matchAt: (value, from) => (value.startsWith(text, from) ? from + text.length : -1),
    matchSuffix: value => (value.endsWith(text) ? value.length - text.length : -1),
    findFirst(value, from) {
      const found = search(value, from);
      return found < 0 ? -1 : found + text.length;
    },
  };
}

function segmentOfSets(sets: CharacterSet[]): Segment {
  const findLongestText = compileSearch(longestText(sets));
  let search: Segment['findFirst'] | undefined;
  return {
    matchAt(value, from) {
      let at = from;
      for (const set of sets) {
        const character = value.codePointAt(at);
        if (character === undefined || !accepts(set, character)) return -1;
        at += unitsOf(character);
      }
      return at;
    },
    matchSuffix(value) {
      let at = value.length;
      for (let index = sets.length - 1; index >= 0; index--) {
        const character = characterBefore(value, at);
        if (character === undefined || !accepts(sets[index]!, character)) return -1;
        at -= unitsOf(character);
      }
      return at;
    },
    findFirst(value, from) {
      // Most values lack the longest literal text. This check makes matching many paths several times faster.
      if (findLongestText(value, from) < 0) return -1;
      search ??= compileBitParallel(sets);
      return search(value, from);
    },
  };
}

function longestText(sets: CharacterSet[]): string {
  let longest = '';
  let text = '';
  for (const character of sets.map(onlyCharacter)) {
    text = isWhole(character) ? text + String.fromCodePoint(character) : '';
    if (text.length > longest.length) longest = text;
  }
  return longest;
}

const unitsOf = (character: number) => (character > 0xffff ? 2 : 1);

function characterBefore(value: string, end: number): number | undefined {
  const whole = value.codePointAt(end - 2);
  return whole !== undefined && whole > 0xffff ? whole : value.codePointAt(end - 1);
}

/**
 * The bit-parallel search of Baeza-Yates and Gonnet: bit N of the state says whether the first N + 1 sets match the text
 * that ends here. Each character costs one step for every 32 sets, at most 128 steps for the longest glob of a rule.
 */
function compileBitParallel(sets: CharacterSet[]): Segment['findFirst'] {
  const words = Math.ceil(sets.length / 32);
  const { edges, masks } = masksOf(sets, words);
  const plain = Int32Array.from({ length: 128 }, (_, character) => edgesUpTo(edges, character));
  const complete = 1 << ((sets.length - 1) & 31);
  const state = new Int32Array(words);
  return (value, from) => {
    state.fill(0);
    let last = 0;
    let at = from;
    while (at < value.length) {
      const character = value.codePointAt(at)!;
      at += unitsOf(character);
      const mask = (character < 128 ? plain[character]! : edgesUpTo(edges, character)) * words;
      let carry = 1;
      for (let word = 0; word <= last; word++) {
        const before = state[word]!;
        state[word] = ((before << 1) | carry) & masks[mask + word]!;
        carry = before >>> 31;
      }
      if (carry === 1 && last + 1 < words) state[++last] = masks[mask + last]! & 1;
      if (last + 1 === words && (state[last]! & complete) !== 0) return at;
      while (last > 0 && state[last] === 0) last--;
    }
    return -1;
  };
}

/** All sets treat the characters between two edges alike. The mask of such a range has one bit for each set that accepts it. */
function masksOf(sets: CharacterSet[], words: number): { edges: Int32Array; masks: Int32Array } {
  const toggles = sets.flatMap(({ edges }, set) => edges.map(edge => ({ edge, set })));
  const edges = Int32Array.from(new Set(toggles.map(({ edge }) => edge))).sort();
  const masks = new Int32Array((edges.length + 1) * words);
  const toggle = (kind: number, set: number) => {
    masks[kind * words + (set >>> 5)]! ^= 1 << (set & 31);
  };
  sets.forEach(({ negated }, set) => {
    if (negated) toggle(0, set);
  });
  toggles.sort((a, b) => a.edge - b.edge);
  let next = 0;
  edges.forEach((edge, index) => {
    masks.copyWithin((index + 1) * words, index * words, (index + 1) * words);
    for (; toggles[next]?.edge === edge; next++) toggle(index + 1, toggles[next]!.set);
  });
  return { edges, masks };
}
