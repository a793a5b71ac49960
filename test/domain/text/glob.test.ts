// Globs: their meaning, that the fast matcher agrees with a simple one, and that none takes long.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compileGlob } from '../../../src/domain/text/glob.ts';
import { compileSearch } from '../../../src/domain/text/text-search.ts';
import { processorMs } from '../../support/processor.ts';

const matchesGlob = (pattern: string, value: string) => compileGlob(pattern)(value);

test('globs', () => {
  const table: [string, string, boolean][] = [
    ['', '', true],
    ['', 'a', false],
    ['*', '', true],
    ['**', 'a/b\nc', true],
    ['a', 'a', true],
    ['a', 'A', false],
    ['a', 'ab', false],
    ['?', '😀', true],
    ['??', '😀', false],
    ['?', '\n', true],
    ['?', '', false],
    ['src/*.ts', 'src/deep/er/x.ts', true],
    ['src/*.ts', 'src/x.tsx', false],
    ['*a*b*c', 'xxaxxbxxcxxc', true],
    ['*a*b*c', 'xxaxxbxxcxxd', false],
    ['release-[0-9]', 'release-7', true],
    ['release-[0-9]', 'release-x', false],
    ['[!0-9]x', 'ax', true],
    ['[!0-9]x', '1x', false],
    ['[^0-9]x', '1x', false],
    ['[^0-9]x', 'ax', true],
    ['[abc-]', '-', true],
    ['[-abc]', '-', true],
    ['[a-]', 'b', false],
    ['[]a]', ']', true],
    ['[!]a]', ']', false],
    ['[!]a]', 'b', true],
    ['[*]', '*', true],
    ['[*]', 'x', false],
    ['[z-a]', 'm', false],
    ['[a^]', '^', true],
    ['[а-я]', 'ж', true],
    ['[😀-😎]', '😃', true],
    ['[abc', '[abc', true],
    ['[abc', 'a', false],
    ['[]', '[]', true],
    ['[!]', '[!]', true],
    ['a]', 'a]', true],
    ['\\*', '\\anything', true],
    ['.*', 'x', false],
    ['(a|b)+', 'a', false],
  ];
  for (const [pattern, value, expected] of table) {
    assert.equal(matchesGlob(pattern, value), expected, `${pattern} on ${JSON.stringify(value)}`);
  }
});

test('a glob agrees with a simple recursive matcher on thousands of small cases', () => {
  const reference = (pattern: string, value: string): boolean => {
    if (pattern === '') return value === '';
    if (pattern[0] === '*') {
      return reference(pattern.slice(1), value) || (value !== '' && reference(pattern, value.slice(1)));
    }
    return (
      value !== '' &&
      (pattern[0] === '?' || pattern[0] === value[0]) &&
      reference(pattern.slice(1), value.slice(1))
    );
  };
  const words = (alphabet: string, length: number): string[] =>
    length === 0
      ? ['']
      : words(alphabet, length - 1).flatMap(word => [word, ...[...alphabet].map(c => word + c)]);
  const values = new Set(words('ab', 4));
  for (const pattern of new Set(words('ab*?', 4))) {
    for (const value of values)
      assert.equal(matchesGlob(pattern, value), reference(pattern, value), `${pattern} ${value}`);
  }
});

/** The simple matcher: one character at a time, with backtracking to the last star. */
function matchesSlowly(pattern: string, value: string): boolean {
  const tokens = tokensOf([...pattern]);
  const characters = [...value];
  let at = 0;
  let token = 0;
  let starToken = -1;
  let starAt = 0;
  while (at < characters.length) {
    const current = tokens[token];
    if (current === '*') {
      starToken = token++;
      starAt = at;
    } else if (current?.(characters[at]!.codePointAt(0)!)) {
      token++;
      at++;
    } else if (starToken >= 0) {
      token = starToken + 1;
      at = ++starAt;
    } else {
      return false;
    }
  }
  while (tokens[token] === '*') token++;
  return token === tokens.length;
}

type Token = '*' | ((character: number) => boolean);

function tokensOf(pattern: string[]): Token[] {
  const tokens: Token[] = [];
  for (let at = 0; at < pattern.length; at++) {
    const character = pattern[at]!;
    const first = pattern[at + 1] === '!' || pattern[at + 1] === '^' ? at + 2 : at + 1;
    const close = pattern.indexOf(']', first + 1);
    if (character === '*') {
      tokens.push('*');
    } else if (character === '?') {
      tokens.push(() => true);
    } else if (character === '[' && close >= 0) {
      const codes = pattern.slice(first, close).map(one => one.codePointAt(0)!);
      const isNegated = first === at + 2;
      tokens.push(code => isMember(codes, code) !== isNegated);
      at = close;
    } else {
      tokens.push(code => code === character.codePointAt(0));
    }
  }
  return tokens;
}

function isMember(codes: number[], code: number): boolean {
  for (let at = 0; at < codes.length; at++) {
    const isRange = codes[at + 1] === 0x2d && at + 2 < codes.length;
    if (codes[at]! <= code && code <= codes[isRange ? at + 2 : at]!) return true;
    if (isRange) at += 2;
  }
  return false;
}

/** A fixed seed, so that failures are reproducible. */
function createDice(seed: number) {
  let state = seed;
  const below = (sides: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * sides);
  };
  const word = (alphabet: string[], length: number) =>
    Array.from({ length }, () => alphabet[below(alphabet.length)]!);
  return { below, word };
}

test('a glob agrees with the simple matcher on any mixture of sets, stars and surrogates', () => {
  const { below, word } = createDice(1);
  const signs = [...'ab*?[]!^-😀', '\ud83d', '\ude00', '[a-b]', '[!a]', '[😀-😎]', '[\ud83d]'];
  const letters = [...'ab-]!😀', '\ud83d', '\ude00'];
  let matched = 0;
  for (let round = 0; round < 20_000; round++) {
    const pattern = word(signs, below(8)).join('');
    const matches = compileGlob(pattern);
    for (let times = 0; times < 3; times++) {
      const value = word(letters, below(9)).join('');
      const expected = matchesSlowly(pattern, value);
      if (expected) matched++;
      assert.equal(matches(value), expected, JSON.stringify([pattern, value]));
    }
  }
  assert.ok(matched > 1_000, String(matched));
});

test('a glob with pieces of any length agrees with the simple matcher, on matches and near misses', () => {
  const { below, word } = createDice(2);
  const wildcards = ['?', '[a-c]', '[!z]'];
  let matched = 0;
  for (let round = 0; round < 1_500; round++) {
    const value = word(['a', 'a', 'a', 'b', 'ж', '😀'], 20 + below(600));
    // Parts of the value become stars or wildcards; then often one character is made wrong.
    const pattern = value.slice();
    if (below(3) > 0)
      for (let count = below(80); count > 0; count--) pattern[below(pattern.length)] = wildcards[below(3)]!;
    for (let count = below(4); count > 0; count--) pattern.splice(below(pattern.length), below(40), '*');
    if (below(2) > 0) pattern[below(pattern.length)] = 'a';
    const expected = matchesSlowly(pattern.join(''), value.join(''));
    if (expected) matched++;
    assert.equal(
      matchesGlob(pattern.join(''), value.join('')),
      expected,
      JSON.stringify([pattern.join(''), value.join('')]),
    );
  }
  assert.ok(matched > 300 && matched < 1_200, String(matched));
});

test('a long text is found at its first occurrence', () => {
  const { below, word } = createDice(3);
  for (let round = 0; round < 300; round++) {
    const value = word(['a', 'a', 'a', 'a', 'a', 'a', 'a', 'b'], 1_000).join('');
    const from = below(300);
    const needle = value.slice(500, 760 + below(200));
    assert.equal(compileSearch(needle)(value, from), value.indexOf(needle, from));
    assert.equal(compileSearch(`${needle}c`)(value, from), -1);
  }
  const period = 'ab'.repeat(200);
  assert.equal(compileSearch(period)(`xa${period}ab`, 0), 'xa'.length);
  assert.equal(compileSearch(`${period}b`)(`${period}${period}b`, 3), period.length);
});

test('the worst glob that a rule can have is matched against a long message in linear time', () => {
  // Every character of the globs occurs, or the matcher would stop at once.
  const message = `bc${'a'.repeat(300_000)}`;
  const halves = 'a'.repeat(1_999);
  const worst: Record<string, string> = {
    'a text that nearly fits everywhere': `*${'a'.repeat(4_000)}b`,
    'one that fails at its beginning': `*b${'a'.repeat(4_000)}*`,
    'one that fails in its middle': `*${halves}b${halves}*`,
    'many pieces': `${'*a'.repeat(2_000)}b`,
    'wildcards that nearly fit everywhere': `*${'a?'.repeat(2_000)}b*`,
    'sets that nearly fit everywhere': `*${'[a-c]'.repeat(800)}b*`,
    'one very large set': `*[!${'bc'.repeat(2_000)}]b*`,
  };
  for (const [what, pattern] of Object.entries(worst)) {
    assert.ok(Buffer.byteLength(pattern) <= 4_096, what);
    const once = processorMs(() => assert.equal(matchesGlob(pattern, message), false));
    // About 100 ms at worst on a busy machine; backtracking at each character took 14 s.
    assert.ok(once < 1_000, `${what}: ${once} ms`);
  }
  assert.ok(processorMs(() => assert.equal(matchesGlob('['.repeat(50_000), 'a'), false)) < 500);
  assert.ok(processorMs(() => assert.equal(matchesGlob(`${'['.repeat(50_000)}]`, 'a'), false)) < 500);
});

test('a text of many different characters is no slower for a glob of many sets', () => {
  const kinds = Array.from({ length: 100_000 }, (_, index) => 0x10000 + index);
  const message = `b${String.fromCodePoint(...kinds)}`;
  const sets = Array.from({ length: 400 }, (_, index) => `[!${String.fromCodePoint(0x20000 + index)}]`);
  assert.ok(processorMs(() => assert.equal(matchesGlob(`*${sets.join('')}b*`, message), false)) < 500);
});
