// What differs between two builds of a suite, and which of it most likely explains another result.

import type { BuildInputs } from './build-inputs.ts';

type Change<Value> = { before: Value; after: Value; isChanged: boolean };

export type InputsDiff = {
  command: Change<string>;
  image: Change<{ name: string; id: string | null }>;
  /** By name. */
  variables: { added: string[]; removed: string[]; changed: string[]; same: string[] };
  dependencies: DependencyChange[];
  limits: (Change<string | number | null> & { name: string })[];
};

export type DependencyChange = {
  id: string;
  name: string;
  /** The hash of the artifact; null if there was none. */
  before: string | null;
  after: string | null;
  /** `compiled`: it has another artifact. `launch`: only its launch command is another one. */
  change: 'added' | 'removed' | 'compiled' | 'launch' | 'same';
};

export type CommitRange = {
  /** The commits that only the later build has, newest first, without those past the limit. */
  commits: { hash: string; subject: string; authorName: string; authoredDate: string }[];
  commitsTotal: number;
  /** How many commits only the earlier build has. */
  missingTotal: number;
  /** In order of path, without those past the limit. */
  files: { path: string; change: 'added' | 'deleted' | 'modified' }[];
  filesTotal: number;
};

export type TestsDiff = {
  /** Tests that fail and did not fail before, without those past the limit. */
  failing: DifferentTest[];
  failingTotal: number;
  /** Tests that failed before and pass. */
  fixed: DifferentTest[];
  fixedTotal: number;
};

export type DifferentTest = { id: bigint; classname: string; name: string };

export type LogDiff = {
  /** The first lines of the last step that the other log has nothing like. Each is listed once. */
  lines: { line: number; text: string }[];
  /** Why the comparison is not complete. */
  cutBecause: 'lines' | 'size' | 'time' | null;
};

export type Differences = {
  /** Undefined if the inputs of one of the builds were not recorded. */
  inputs: InputsDiff | undefined;
  isSameCommit: boolean;
  /** Undefined for the same commit, or if the server no longer has both. */
  range: CommitRange | undefined;
  /** Undefined if one of the builds has no test report. */
  tests: TestsDiff | undefined;
  /** Undefined if the build passed, or if one of the logs is gone. */
  log: LogDiff | undefined;
};

/** The result of a comparison with the build `base`. */
export type BuildDiff<Build> = Differences & {
  base: Build;
  /** How the base was chosen: it passed on the same branch, it passed at an ancestor, or the caller named it. */
  chosen: 'branch' | 'ancestor' | 'caller';
  causes: Cause[];
};

export const causeKinds = [
  'dependencies',
  'image',
  'command',
  'variables',
  'limits',
  'commits',
  'chance',
  'tests',
  'log',
] as const;
/** `text` is a sentence. */
export type Cause = { kind: (typeof causeKinds)[number]; text: string };

export function compareInputs(before: BuildInputs, after: BuildInputs): InputsDiff {
  const image = (inputs: BuildInputs) => ({ name: inputs.image, id: inputs.imageId });
  // An image that was never prepared has no id.
  const hasIds = before.imageId !== null && after.imageId !== null;
  const limitNames = [...new Set([...Object.keys(before.limits), ...Object.keys(after.limits)])];
  return {
    command: changeOf(before.command, after.command),
    image: {
      before: image(before),
      after: image(after),
      isChanged: hasIds ? before.imageId !== after.imageId : before.image !== after.image,
    },
    variables: compareVariables(before.variables, after.variables),
    dependencies: compareDependencies(before.dependencies, after.dependencies),
    limits: limitNames.map(name => ({
      name,
      ...changeOf(before.limits[name] ?? null, after.limits[name] ?? null),
    })),
  };
}

const changeOf = <Value>(before: Value, after: Value): Change<Value> => ({
  before,
  after,
  isChanged: before !== after,
});

function compareVariables(
  before: BuildInputs['variables'],
  after: BuildInputs['variables'],
): InputsDiff['variables'] {
  const old = new Map(before.map(({ name, fingerprint }) => [name, fingerprint]));
  const names = new Set(after.map(({ name }) => name));
  const diff: InputsDiff['variables'] = { added: [], removed: [], changed: [], same: [] };
  for (const { name, fingerprint } of after)
    diff[!old.has(name) ? 'added' : old.get(name) === fingerprint ? 'same' : 'changed'].push(name);
  diff.removed = [...old.keys()].filter(name => !names.has(name));
  return diff;
}

function compareDependencies(
  before: BuildInputs['dependencies'],
  after: BuildInputs['dependencies'],
): DependencyChange[] {
  const old = new Map(before.map(dependency => [dependency.id, dependency]));
  const kept = new Set(after.map(({ id }) => id));
  return [
    ...after.map(({ id, name, artifact, launch }): DependencyChange => {
      const was = old.get(id);
      if (!was) return { id, name, before: null, after: artifact, change: 'added' };
      const change = was.artifact !== artifact ? 'compiled' : was.launch !== launch ? 'launch' : 'same';
      return { id, name, before: was.artifact, after: artifact, change };
    }),
    ...before
      .filter(({ id }) => !kept.has(id))
      .map(
        ({ id, name, artifact }): DependencyChange => ({
          id,
          name,
          before: artifact,
          after: null,
          change: 'removed',
        }),
      ),
  ];
}

/**
 * What may explain that the builds ended differently, the likeliest first: an input other than the code, because nobody
 * looks for it there, then the code, then what the build itself printed.
 */
export function listCauses(differences: Differences): Cause[] {
  const { inputs, range, tests, log } = differences;
  const texts: Record<Cause['kind'], string | undefined> = {
    dependencies: inputs && describeDependencies(inputs.dependencies),
    image: inputs && describeImage(inputs.image),
    command: inputs?.command.isChanged ? 'The command of the suite changed.' : undefined,
    variables: inputs && describeVariables(inputs.variables),
    limits: inputs && describeLimits(inputs.limits),
    commits: differences.isSameCommit ? undefined : describeCommits(range),
    chance: undefined,
    tests: tests && describeTests(tests),
    log: log?.lines[0] && `The log differs first in line ${log.lines[0].line}: ${shorten(log.lines[0].text)}`,
  };
  const isExplained = causeKinds.some(
    kind => texts[kind] !== undefined && kind !== 'tests' && kind !== 'log',
  );
  if (inputs && !isExplained)
    texts.chance =
      'The commit, the command, the image, the dependencies, the variables and the limits are the same. The result depends on chance, on timing or on something outside the build.';
  return causeKinds.flatMap(kind => {
    const text = texts[kind];
    return text === undefined ? [] : [{ kind, text }];
  });
}

const LISTED = 3;

/** The first names, and how many more there are. */
function listNames(names: readonly string[], total = names.length): string {
  const listed = names.slice(0, LISTED).map(shorten);
  const more = total - listed.length;
  const last = more > 0 ? `${more} more` : (listed.pop() ?? '');
  return listed.length > 0 ? `${listed.join(', ')} and ${last}` : last;
}

const SHORT = 120;
const shorten = (text: string) => {
  const characters = [...text.slice(0, SHORT * 2)];
  return characters.length > SHORT ? `${characters.slice(0, SHORT - 1).join('')}…` : text;
};

const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

function describeDependencies(dependencies: readonly DependencyChange[]): string | undefined {
  const changes = [
    ['compiled', 'was compiled again with a different result', 'were compiled again with different results'],
    ['added', 'was added', 'were added'],
    ['removed', 'was removed', 'were removed'],
    [
      'launch',
      'has a different launch command or environment',
      'have different launch commands or environments',
    ],
  ] as const;
  const texts = changes.flatMap(([change, one, several]) => {
    const names = dependencies.filter(dependency => dependency.change === change).map(({ name }) => name);
    if (names.length === 0) return [];
    return names.length === 1
      ? [`the dependency ${shorten(names[0] as string)} ${one}`]
      : [`the dependencies ${listNames(names)} ${several}`];
  });
  return texts.length > 0 ? sentence(texts.join('; ')) : undefined;
}

function describeImage({ before, after, isChanged }: InputsDiff['image']): string | undefined {
  if (!isChanged) return undefined;
  return before.name === after.name
    ? `The image ${after.name} was replaced by another one of the same name.`
    : `The image changed from ${before.name} to ${after.name}.`;
}

function describeVariables({ added, removed, changed }: InputsDiff['variables']): string | undefined {
  const texts = [
    ['has a different value', 'have different values', changed],
    ['was added', 'were added', added],
    ['was removed', 'were removed', removed],
  ] as const;
  const described = texts.flatMap(([one, several, names]) => {
    if (names.length === 0) return [];
    return names.length === 1
      ? [`the variable ${names[0]} ${one}`]
      : [`the variables ${listNames(names)} ${several}`];
  });
  return described.length > 0 ? sentence(described.join('; ')) : undefined;
}

function describeLimits(limits: InputsDiff['limits']): string | undefined {
  const changed = limits.filter(({ isChanged }) => isChanged);
  if (changed.length === 0) return undefined;
  const texts = changed.map(
    ({ name, before, after }) => `${name} from ${describeLimit(before)} to ${describeLimit(after)}`,
  );
  return `The settings of the server changed: ${texts.join(', ')}.`;
}

/** A round number of bytes is easier to read in GiB or MiB. Other limits are never that large. */
function describeLimit(value: string | number | null): string {
  if (typeof value !== 'number') return value ?? 'none';
  for (const [unit, bytes] of [
    ['GiB', 1024 ** 3],
    ['MiB', 1024 ** 2],
  ] as const)
    if (value > 0 && value % bytes === 0) return `${value / bytes} ${unit}`;
  return `${value}`;
}

function describeCommits(range: CommitRange | undefined): string {
  if (!range) return 'The commit is different.';
  const { commits, commitsTotal, missingTotal, filesTotal } = range;
  const files = `${filesTotal === 1 ? '1 file' : `${filesTotal} files`} changed`;
  const missing =
    missingTotal > 0
      ? ` ${missingTotal === 1 ? '1 commit' : `${missingTotal} commits`} of the other build ${missingTotal === 1 ? 'is' : 'are'} not in this one.`
      : '';
  const [newest] = commits;
  if (!newest) return `${files}.${missing}`;
  if (commitsTotal === 1)
    return `1 commit by ${shorten(newest.authorName)}, ${files}: ${shorten(newest.subject)}.${missing}`;
  const authors = [...new Set(commits.map(({ authorName }) => authorName))];
  return `${commitsTotal} commits by ${listNames(authors)}, ${files}.${missing}`;
}

function describeTests({ failing, failingTotal }: TestsDiff): string | undefined {
  if (failingTotal === 0) return undefined;
  const names = listNames(
    failing.map(({ name }) => name),
    failingTotal,
  );
  return failingTotal === 1
    ? `1 test fails that did not fail before: ${names}.`
    : `${failingTotal} tests fail that did not fail before: ${names}.`;
}
