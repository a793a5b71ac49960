// Evaluates the rules that decide which suites a commit starts: their subjects, operators and results.

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
  'request.trigger',
  'request.trigger_name',
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
  /** The type and name of the trigger that started the request; empty if it was no trigger. */
  trigger: string;
  triggerName: string;
};

export type RuleResult<R extends Rule = Rule> = R & { holds: boolean; saw: string | string[] };
export type Evaluation<R extends Rule = Rule> = { runs: boolean; rules: RuleResult<R>[] };

const maxShownElements = 50;
const maxShownCharacters = 1_000;

/**
 * Evaluates one build request for many suites. All rules of a suite must hold; a suite without rules always runs. A rule that
 * several suites have is evaluated once.
 */
export function createEvaluator(
  commit: CommitDetails,
): <R extends Rule>(rules: readonly R[]) => Evaluation<R> {
  const outcomes = new Map<string, Outcome>();
  // Most rules on one subject see the same values, so these are shared.
  const seen = new Map<string, string | string[]>();
  const outcomeOf = (rule: Rule): Outcome => {
    const key = `${rule.subject} ${rule.operator} ${rule.value}`;
    const outcome = outcomes.get(key) ?? evaluateRule(rule, commit[properties[rule.subject]], 0, seen);
    outcomes.set(key, outcome);
    return outcome;
  };
  return rules => {
    const results = rules.map(rule => ({ ...rule, ...outcomeOf(rule) }));
    return { runs: results.every(rule => rule.holds), rules: results };
  };
}

/**
 * Evaluates rules on a stored commit, of which some paths may be missing. A rule on files that no stored path decides
 * stays open, and so does whether the suite runs, unless another rule forbids it.
 */
export function evaluatePartially<R extends Rule>(
  rules: readonly R[],
  commit: CommitDetails,
  filesOmitted: number,
): { runs: boolean | undefined; rules: (RuleResult<R> & { isOpen: boolean })[] } {
  const results = rules.map(rule => {
    const omitted = rule.subject === 'commit.files' ? filesOmitted : 0;
    const outcome = evaluateRule(rule, commit[properties[rule.subject]], omitted);
    // A matching path satisfies a positive rule and breaks a negative one.
    const isOpen = omitted > 0 && outcome.holds === tests[rule.operator](rule.value).negative;
    return { ...rule, ...outcome, isOpen };
  });
  const isForbidden = results.some(rule => !rule.holds && !rule.isOpen);
  const isOpen = results.some(rule => rule.isOpen);
  return { runs: isForbidden ? false : isOpen ? undefined : true, rules: results };
}

type Outcome = Pick<RuleResult, 'holds' | 'saw'>;

function evaluateRule(
  rule: Rule,
  value: string | string[],
  omitted: number,
  seen = new Map<string, string | string[]>(),
): Outcome {
  const { test, negative } = tests[rule.operator](rule.value);
  const once = (key: string, see: () => string | string[]) => {
    const saw = seen.get(key) ?? see();
    seen.set(key, saw);
    return saw;
  };
  if (typeof value === 'string')
    return { holds: test(value) !== negative, saw: once(rule.subject, () => shorten(value)) };
  // The same search finds the element that satisfies a positive rule or breaks a negative one.
  const decisive = value.findIndex(test);
  return {
    holds: decisive >= 0 !== negative,
    saw: once(`${rule.subject} ${Math.max(decisive, maxShownElements - 1)}`, () =>
      sample(value, decisive, omitted),
    ),
  };
}

const properties: Record<Subject, keyof CommitDetails> = {
  'commit.message': 'message',
  'commit.branches': 'branches',
  'commit.tags': 'tags',
  'commit.files': 'files',
  'commit.ref': 'ref',
  'commit.author_name': 'authorName',
  'commit.author_email': 'authorEmail',
  'commit.committer_name': 'committerName',
  'commit.committer_email': 'committerEmail',
  'request.trigger': 'trigger',
  'request.trigger_name': 'triggerName',
};

type Test = { test: (value: string) => boolean; negative: boolean };

const tests: Record<Operator, (expected: string) => Test> = {
  contains: expected => ({ test: containsText(expected), negative: false }),
  does_not_contain: expected => ({ test: containsText(expected), negative: true }),
  equals: expected => ({ test: value => value === expected, negative: false }),
  does_not_equal: expected => ({ test: value => value === expected, negative: true }),
  starts_with: expected => ({ test: value => value.startsWith(expected), negative: false }),
  ends_with: expected => ({ test: value => value.endsWith(expected), negative: false }),
  matches: expected => ({ test: compileGlob(expected), negative: false }),
  does_not_match: expected => ({ test: compileGlob(expected), negative: true }),
};

function containsText(expected: string): Test['test'] {
  const search = compileSearch(expected);
  return value => search(value, 0) >= 0;
}

function shorten(text: string): string {
  // Cut by UTF-16 units first: a message may have megabytes, and splitting it into characters would copy all of it.
  if (text.length <= maxShownCharacters) return text;
  return `${text
    .slice(0, maxShownCharacters)
    .toWellFormed()
    .replace(/\uFFFD$/, '')}…`;
}

/** Shortens a long list but always shows the decisive element. */
function sample(list: string[], decisive: number, omitted: number): string[] {
  if (list.length <= maxShownElements && omitted === 0) return list.map(shorten);
  const shown = list.slice(0, maxShownElements).map(shorten);
  if (decisive >= maxShownElements) shown[maxShownElements - 1] = shorten(list[decisive]!);
  return [...shown, `… ${list.length + omitted - shown.length} more`];
}
