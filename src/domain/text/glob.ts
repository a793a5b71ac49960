// Whether a glob covers a value: case-minding, `*` crossing everything, `/` and newlines too. A value may have megabytes
// and a glob thousands of characters, so nothing is tried twice: each piece between stars is taken where it first fits.

import { edgesUpTo, onlyCharacter, type Place, parseGlob, takes } from './glob-pattern.ts';
import { compileSearch } from './text-search.ts';

/** What stands between two stars. All answer with a place in the value, in UTF-16 units, or -1. */
type Piece = {
  /** Where it ends, when it begins at `from`. */
  endFrom: (value: string, from: number) => number;
  /** Where it begins, when it ends with the value. */
  beginOfEnd: (value: string) => number;
  /** Where it ends, at the first place at or after `from` that it fits. */
  endOfFirst: (value: string, from: number) => number;
};

export function compileGlob(pattern: string): (value: string) => boolean {
  const places = parseGlob(pattern);
  const leastLength = places.reduce((sum, piece) => sum + piece.length, 0);
  const [head, ...rest] = places.map(compilePiece) as [Piece, ...Piece[]];
  const tail = rest.pop();
  if (!tail) return value => value.length >= leastLength && head.endFrom(value, 0) === value.length;
  const middle = rest.filter((_, index) => places[index + 1]!.length > 0);
  return value => {
    if (value.length < leastLength) return false;
    let at = head.endFrom(value, 0);
    if (at < 0) return false;
    const end = tail.beginOfEnd(value);
    if (end < at) return false;
    for (const piece of middle) {
      // What fits earliest leaves the most for the others: no other place needs to be tried.
      at = piece.endOfFirst(value, at);
      if (at < 0) return false;
    }
    return at <= end;
  };
}

function compilePiece(places: Place[]): Piece {
  const characters = places.map(onlyCharacter);
  return characters.every(isWhole)
    ? pieceOfText(characters.map(character => String.fromCodePoint(character)).join(''))
    : pieceOfPlaces(places);
}

/** Half of a surrogate pair would be found inside of a whole one: such a piece is compared by characters. */
function isWhole(character: number | undefined): character is number {
  return character !== undefined && (character < 0xd800 || character > 0xdfff);
}

function pieceOfText(text: string): Piece {
  const search = compileSearch(text);
  return {
    endFrom: (value, from) => (value.startsWith(text, from) ? from + text.length : -1),
    beginOfEnd: value => (value.endsWith(text) ? value.length - text.length : -1),
    endOfFirst(value, from) {
      const found = search(value, from);
      return found < 0 ? -1 : found + text.length;
    },
  };
}

function pieceOfPlaces(places: Place[]): Piece {
  const mustHave = compileSearch(longestText(places));
  let search: Piece['endOfFirst'] | undefined;
  return {
    endFrom(value, from) {
      let at = from;
      for (const place of places) {
        const character = value.codePointAt(at);
        if (character === undefined || !takes(place, character)) return -1;
        at += unitsOf(character);
      }
      return at;
    },
    beginOfEnd(value) {
      let at = value.length;
      for (let index = places.length - 1; index >= 0; index--) {
        const character = characterBefore(value, at);
        if (character === undefined || !takes(places[index]!, character)) return -1;
        at -= unitsOf(character);
      }
      return at;
    },
    endOfFirst(value, from) {
      // Most values lack it, and of a million paths each is asked: this is several times as fast.
      if (mustHave(value, from) < 0) return -1;
      search ??= compileParallel(places);
      return search(value, from);
    },
  };
}

function longestText(places: Place[]): string {
  let longest = '';
  let text = '';
  for (const character of places.map(onlyCharacter)) {
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
 * Tries every beginning at once: a bit for each place says whether the places up to it took what was read last
 * (Baeza-Yates and Gonnet). A character of the value costs one step for each 32 places, and only as far as some
 * beginning has come; for the longest glob that a rule may hold that is 128 steps.
 */
function compileParallel(places: Place[]): Piece['endOfFirst'] {
  const words = Math.ceil(places.length / 32);
  const { edges, masks } = masksOf(places, words);
  const plain = Int32Array.from({ length: 128 }, (_, character) => edgesUpTo(edges, character));
  const complete = 1 << ((places.length - 1) & 31);
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

/** Characters between the same two edges are alike to all places: for each such kind, a bit for each place that takes it. */
function masksOf(places: Place[], words: number): { edges: Int32Array; masks: Int32Array } {
  const turns = places.flatMap(({ edges }, place) => edges.map(edge => ({ edge, place })));
  const edges = Int32Array.from(new Set(turns.map(({ edge }) => edge))).sort();
  const masks = new Int32Array((edges.length + 1) * words);
  const turn = (kind: number, place: number) => {
    masks[kind * words + (place >>> 5)]! ^= 1 << (place & 31);
  };
  places.forEach(({ negated }, place) => {
    if (negated) turn(0, place);
  });
  turns.sort((a, b) => a.edge - b.edge);
  let next = 0;
  edges.forEach((edge, index) => {
    masks.copyWithin((index + 1) * words, index * words, (index + 1) * words);
    for (; turns[next]?.edge === edge; next++) turn(index + 1, turns[next]!.place);
  });
  return { edges, masks };
}
