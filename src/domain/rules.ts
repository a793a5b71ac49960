// Which suites a commit starts: the subjects and operators of a rule, and the evaluation with what each rule saw.
// Reading the facts from git is left to the engine, keeping the rules to the store.

import { compileGlob } from './text/glob.ts';
import { compileSearch } from './text/text-search.ts';

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

export type CommitDetails = {
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

export type RuleResult<R extends Rule = Rule> = R & { holds: boolean; saw: string | string[] };
export type Evaluation<R extends Rule = Rule> = { runs: boolean; rules: RuleResult<R>[] };

const seenElements = 50;
const seenCharacters = 1_000;

/** All rules must hold; a suite without rules always runs. */
export function evaluateRules<R extends Rule>(rules: readonly R[], facts: CommitDetails): Evaluation<R> {
  return createEvaluator(facts)(rules);
}

/** Judges one commit for many suites: a rule that several have is judged once. */
export function createEvaluator(
  facts: CommitDetails,
): <R extends Rule>(rules: readonly R[]) => Evaluation<R> {
  const known = new Map<string, Verdict>();
  // Most rules on one subject see the same of it, which is held once.
  const seen = new Map<string, string | string[]>();
  const verdictOn = (rule: Rule): Verdict => {
    const key = `${rule.subject} ${rule.operator} ${rule.value}`;
    const verdict = known.get(key) ?? evaluateRule(rule, factOf(rule.subject, facts), 0, seen);
    known.set(key, verdict);
    return verdict;
  };
  return rules => {
    const judged = rules.map(rule => ({ ...rule, ...verdictOn(rule) }));
    return { runs: judged.every(rule => rule.holds), rules: judged };
  };
}

/**
 * Judges on what was kept of a commit. A rule on files that none of the kept paths decides stays open while others are
 * missing, and so does whether the suite runs, unless another rule forbids it.
 */
export function evaluatePartially<R extends Rule>(
  rules: readonly R[],
  facts: CommitDetails,
  filesOmitted: number,
): { runs: boolean | undefined; rules: (RuleResult<R> & { isOpen: boolean })[] } {
  const judged = rules.map(rule => {
    const omitted = rule.subject === 'commit.files' ? filesOmitted : 0;
    const verdict = evaluateRule(rule, factOf(rule.subject, facts), omitted);
    // A path that decides makes a positive rule hold and breaks a negative one.
    const isOpen = omitted > 0 && verdict.holds === tests[rule.operator](rule.value).negative;
    return { ...rule, ...verdict, isOpen };
  });
  const isForbidden = judged.some(rule => !rule.holds && !rule.isOpen);
  const isOpen = judged.some(rule => rule.isOpen);
  return { runs: isForbidden ? false : isOpen ? undefined : true, rules: judged };
}

type Verdict = Pick<RuleResult, 'holds' | 'saw'>;

function evaluateRule(
  rule: Rule,
  fact: string | string[],
  omitted: number,
  seen = new Map<string, string | string[]>(),
): Verdict {
  const { test, negative } = tests[rule.operator](rule.value);
  const once = (key: string, see: () => string | string[]) => {
    const saw = seen.get(key) ?? see();
    seen.set(key, saw);
    return saw;
  };
  if (typeof fact === 'string')
    return { holds: test(fact) !== negative, saw: once(rule.subject, () => shorten(fact)) };
  // The same search serves both kinds: the element that satisfies a positive rule, or breaks a negative one.
  const decisive = fact.findIndex(test);
  return {
    holds: decisive >= 0 !== negative,
    saw: once(`${rule.subject} ${Math.max(decisive, seenElements - 1)}`, () =>
      sample(fact, decisive, omitted),
    ),
  };
}

function factOf(subject: Subject, facts: CommitDetails): string | string[] {
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
  contains: wanted => ({ test: containing(wanted), negative: false }),
  does_not_contain: wanted => ({ test: containing(wanted), negative: true }),
  equals: wanted => ({ test: value => value === wanted, negative: false }),
  does_not_equal: wanted => ({ test: value => value === wanted, negative: true }),
  starts_with: wanted => ({ test: value => value.startsWith(wanted), negative: false }),
  ends_with: wanted => ({ test: value => value.endsWith(wanted), negative: false }),
  matches: wanted => ({ test: compileGlob(wanted), negative: false }),
  does_not_match: wanted => ({ test: compileGlob(wanted), negative: true }),
};

function containing(wanted: string): Test['test'] {
  const search = compileSearch(wanted);
  return value => search(value, 0) >= 0;
}

function shorten(text: string): string {
  // Cut by UTF-16 units first: a message may have megabytes, and splitting it into characters would copy it all.
  if (text.length <= seenCharacters) return text;
  return `${text
    .slice(0, seenCharacters)
    .toWellFormed()
    .replace(/\uFFFD$/, '')}…`;
}

/** A long list is cut, but the element that decided is always among those shown. */
function sample(list: string[], decisive: number, omitted: number): string[] {
  if (list.length <= seenElements && omitted === 0) return list.map(shorten);
  const shown = list.slice(0, seenElements).map(shorten);
  if (decisive >= seenElements) shown[seenElements - 1] = shorten(list[decisive]!);
  return [...shown, `… ${list.length + omitted - shown.length} more`];
}
