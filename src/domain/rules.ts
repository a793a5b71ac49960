// Which suites a commit starts: the subjects and operators of a rule, and the judgement with what each rule saw.
// Reading the facts from git is left to the engine, keeping the rules to the store.

export const subjects = [
  'commit.message',
  'commit.branches',
  'commit.tags',
  'commit.files',
  'commit.ref',
  'commit.author_name',
  'commit.author_email',
  'commit.committer_name',
  'commit.committer_email',
] as const;

export const operators = [
  'contains',
  'does_not_contain',
  'equals',
  'does_not_equal',
  'starts_with',
  'ends_with',
  'matches',
  'does_not_match',
] as const;

export type Subject = (typeof subjects)[number];
export type Operator = (typeof operators)[number];
export type Rule = { subject: Subject; operator: Operator; value: string };

export type CommitFacts = {
  message: string;
  branches: string[];
  tags: string[];
  files: string[];
  ref: string;
  authorName: string;
  authorEmail: string;
  committerName: string;
  committerEmail: string;
};

export type JudgedRule<R extends Rule = Rule> = R & { holds: boolean; saw: string | string[] };
export type Judgement<R extends Rule = Rule> = { runs: boolean; rules: JudgedRule<R>[] };

const seenElements = 50;
const seenCharacters = 1_000;

/** All rules must hold; a suite without rules always runs. */
export function judge<R extends Rule>(rules: readonly R[], facts: CommitFacts): Judgement<R> {
  const judged = rules.map(rule => judgeRule(rule, facts));
  return { runs: judged.every(rule => rule.holds), rules: judged };
}

function judgeRule<R extends Rule>(rule: R, facts: CommitFacts): JudgedRule<R> {
  const fact = factOf(rule.subject, facts);
  const { test, negative } = tests[rule.operator](rule.value);
  if (typeof fact === 'string') return { ...rule, holds: test(fact) !== negative, saw: shorten(fact) };
  // The same search serves both kinds: the element that satisfies a positive rule, or breaks a negative one.
  const decisive = fact.findIndex(test);
  return { ...rule, holds: decisive >= 0 !== negative, saw: sample(fact, decisive) };
}

function factOf(subject: Subject, facts: CommitFacts): string | string[] {
  switch (subject) {
    case 'commit.message':
      return facts.message;
    case 'commit.branches':
      return facts.branches;
    case 'commit.tags':
      return facts.tags;
    case 'commit.files':
      return facts.files;
    case 'commit.ref':
      return facts.ref;
    case 'commit.author_name':
      return facts.authorName;
    case 'commit.author_email':
      return facts.authorEmail;
    case 'commit.committer_name':
      return facts.committerName;
    case 'commit.committer_email':
      return facts.committerEmail;
  }
}

type Test = { test: (value: string) => boolean; negative: boolean };

const tests: Record<Operator, (wanted: string) => Test> = {
  contains: wanted => ({ test: value => value.includes(wanted), negative: false }),
  does_not_contain: wanted => ({ test: value => value.includes(wanted), negative: true }),
  equals: wanted => ({ test: value => value === wanted, negative: false }),
  does_not_equal: wanted => ({ test: value => value === wanted, negative: true }),
  starts_with: wanted => ({ test: value => value.startsWith(wanted), negative: false }),
  ends_with: wanted => ({ test: value => value.endsWith(wanted), negative: false }),
  matches: wanted => ({ test: compileGlob(wanted), negative: false }),
  does_not_match: wanted => ({ test: compileGlob(wanted), negative: true }),
};

function shorten(text: string): string {
  // Cut by UTF-16 units first: a message may have megabytes, and splitting it into characters would copy it all.
  if (text.length <= seenCharacters) return text;
  return `${text
    .slice(0, seenCharacters)
    .toWellFormed()
    .replace(/\uFFFD$/, '')}…`;
}

/** A long list is cut, but the element that decided is always among those shown. */
function sample(list: string[], decisive: number): string[] {
  if (list.length <= seenElements) return list.map(shorten);
  const shown = list.slice(0, seenElements).map(shorten);
  if (decisive >= seenElements) shown[seenElements - 1] = shorten(list[decisive]!);
  return [...shown, `… ${list.length - seenElements} more`];
}

/** Covers the whole value; `*` crosses everything, `/` and newlines too; a backslash is an ordinary character. */
export function matchesGlob(pattern: string, value: string): boolean {
  return compileGlob(pattern)(value);
}

const star = Symbol('star');
const anyOne = Symbol('any one character');
type CharacterSet = { negated: boolean; ranges: [low: number, high: number][] };
type Token = typeof star | typeof anyOne | number | CharacterSet;

function compileGlob(pattern: string): (value: string) => boolean {
  const tokens = tokenize(Array.from(pattern, character => character.codePointAt(0)!));
  return value =>
    run(
      tokens,
      Array.from(value, character => character.codePointAt(0)!),
    );
}

/**
 * Every token but the star takes exactly one character, so only the last star ever needs to be tried again:
 * time is at most pattern × value, never exponential.
 */
function run(tokens: Token[], value: number[]): boolean {
  let at = 0;
  let token = 0;
  let starToken = -1;
  let starAt = 0;
  while (at < value.length) {
    const current = tokens[token];
    if (current === star) {
      starToken = token++;
      starAt = at;
    } else if (current !== undefined && takes(current, value[at]!)) {
      token++;
      at++;
    } else if (starToken >= 0) {
      token = starToken + 1;
      at = ++starAt;
    } else {
      return false;
    }
  }
  while (tokens[token] === star) token++;
  return token === tokens.length;
}

function takes(token: Exclude<Token, typeof star>, character: number): boolean {
  if (token === anyOne) return true;
  if (typeof token === 'number') return token === character;
  return token.ranges.some(([low, high]) => low <= character && character <= high) !== token.negated;
}

const code = { star: 0x2a, question: 0x3f, open: 0x5b, close: 0x5d, bang: 0x21, caret: 0x5e, dash: 0x2d };

function tokenize(pattern: number[]): Token[] {
  const tokens: Token[] = [];
  // Found once: without it a pattern of many open brackets would be searched to its end for each of them.
  const lastClose = pattern.lastIndexOf(code.close);
  let at = 0;
  while (at < pattern.length) {
    const character = pattern[at++]!;
    if (character === code.star) {
      if (tokens.at(-1) !== star) tokens.push(star);
    } else if (character === code.question) {
      tokens.push(anyOne);
    } else if (character === code.open && at < lastClose) {
      const set = readSet(pattern, at);
      tokens.push(set ? set.set : character);
      if (set) at = set.end;
    } else {
      tokens.push(character);
    }
  }
  return tokens;
}

/** `]` directly after the opening is an ordinary member; a bracket that never closes is an ordinary character. */
function readSet(pattern: number[], start: number): { set: CharacterSet; end: number } | undefined {
  let at = start;
  const negated = pattern[at] === code.bang || pattern[at] === code.caret;
  if (negated) at++;
  const close = pattern.indexOf(code.close, at + 1);
  if (close < 0) return undefined;
  const ranges: CharacterSet['ranges'] = [];
  while (at < close) {
    const low = pattern[at]!;
    const isRange = pattern[at + 1] === code.dash && at + 2 < close;
    ranges.push([low, isRange ? pattern[at + 2]! : low]);
    at += isRange ? 3 : 1;
  }
  return { set: { negated, ranges }, end: close + 1 };
}
