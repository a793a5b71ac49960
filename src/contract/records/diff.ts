// The record of what differs between two builds: its schema, and a function that creates it.

import { type BuildDiff, causeKinds, type DifferentTest } from '../../domain/result/build-diff.ts';
import { idPair, idPairShape, ids, type JsonSchema, record, shape } from '../wire.ts';
import { type BuildRow, buildShape, presentBuild } from './build.ts';

const NOT_RECORDED = 'Null if the inputs of one of the builds were not recorded.';

const changeShape = (title: string, value: JsonSchema, more: Record<string, JsonSchema> = {}) =>
  record(title, { ...more, before: value, after: value, changed: shape.boolean('Whether they differ.') });

const described = (schema: JsonSchema, description: string): JsonSchema => ({ ...schema, description });

const durationShape = shape.nullable(shape.integer('In milliseconds; null if it did not run to its end.'));
const exitCodeShape = shape.nullable(shape.integer('Null unless the command exited by itself.'));
const artifactShape = shape.nullable(shape.string('The hash of its artifact; null if it had none.'));
const limitShape: JsonSchema = {
  type: ['string', 'number', 'null'],
  description: 'The value of the setting; null if it was not recorded.',
};
const names = (description: string) => described(shape.list({ type: 'string' }), description);

const differentTestShape = record('DifferentTest', {
  ...ids,
  classname: shape.string('Its class, or the names of the suites around it.'),
  name: shape.string('Its name.'),
});

export const buildDiffShape = record('BuildDiff', {
  against: described(buildShape, 'The build that it is compared with.'),
  chosen: shape.oneOf(
    ['branch', 'ancestor', 'caller'],
    'How that build was chosen: it passed on the same branch, it passed at the nearest ancestor, or `against` named it.',
  ),
  causes: described(
    shape.list(
      record('Cause', {
        kind: shape.oneOf(causeKinds, 'What differs.'),
        text: shape.string('A sentence that describes it.'),
      }),
    ),
    'What may explain a different result, the most likely first. `chance`: nothing that is recorded differs.',
  ),
  duration_ms: changeShape('DurationChange', durationShape),
  exit_code: changeShape('ExitCodeChange', exitCodeShape),
  command: described(
    shape.nullable(changeShape('CommandChange', shape.string('The command.'))),
    NOT_RECORDED,
  ),
  image: described(
    shape.nullable(
      record('ImageChange', {
        before: shape.string('The name.'),
        before_id: shape.nullable(shape.string('Identifies the content; null if it was never used.')),
        after: shape.string('The name.'),
        after_id: shape.nullable(shape.string('Identifies the content; null if it was never used.')),
        changed: shape.boolean('Whether the contents differ.'),
      }),
    ),
    NOT_RECORDED,
  ),
  limits: described(
    {
      ...shape.list(
        changeShape('LimitChange', limitShape, { name: shape.string('The name of the setting.') }),
      ),
      type: ['array', 'null'],
    },
    NOT_RECORDED,
  ),
  variables: described(
    shape.nullable(
      record('VariablesChange', {
        added: names('Names of variables that only this build has.'),
        removed: names('Names of variables that only the other build has.'),
        changed: names('Names of variables with another content.'),
      }),
    ),
    NOT_RECORDED,
  ),
  dependencies: described(
    {
      ...shape.list(
        record('DependencyChange', {
          ...idPairShape('dependency_id', 'The dependency, which may have been deleted.'),
          name: shape.string('Its name.'),
          before: artifactShape,
          after: artifactShape,
          change: shape.oneOf(
            ['added', 'removed', 'compiled', 'launch', 'same'],
            '`compiled`: it has another artifact. `launch`: only its launch command or its environment is another one.',
          ),
        }),
      ),
      type: ['array', 'null'],
    },
    NOT_RECORDED,
  ),
  commits: described(
    shape.nullable(
      record('CommitRange', {
        list: described(
          shape.list(
            record('RangeCommit', {
              ref: shape.string('The full hash.'),
              subject: shape.string('The first line of its message.'),
              scm_author_name: shape.string('Author.'),
              scm_authored_date: shape.time('With the UTC offset that git recorded.'),
            }),
          ),
          'The commits that only this build has, newest first; at most 100.',
        ),
        total: shape.integer('How many commits only this build has.'),
        missing: shape.integer('How many commits only the other build has.'),
        files: described(
          shape.list(
            record('ChangedFile', {
              path: shape.string('Its path in the repository.'),
              change: shape.oneOf(['added', 'deleted', 'modified'], 'What happened to it.'),
            }),
          ),
          'The files that differ; at most 300.',
        ),
        files_total: shape.integer('How many files differ.'),
      }),
    ),
    'Null if the server no longer has both commits.',
  ),
  tests: described(
    shape.nullable(
      record('TestsChange', {
        new_failures: described(
          shape.list(differentTestShape),
          'Tests that fail here and did not fail there; at most 100.',
        ),
        new_failures_total: shape.integer('How many these are.'),
        fixed: described(
          shape.list(differentTestShape),
          'Tests that failed there and pass here; at most 100.',
        ),
        fixed_total: shape.integer('How many these are.'),
      }),
    ),
    'Null if one of the builds has no test report.',
  ),
  log: described(
    shape.nullable(
      record('LogChange', {
        lines: described(
          shape.list(
            record('DifferentLine', {
              line: shape.integer('Its number in the log, starting at 1.'),
              text: shape.string('Without colours; at most 500 characters.'),
            }),
          ),
          'The first lines of the last step that are not in the other log, ignoring times and numbers; at most 200.',
        ),
        cut_because: shape.nullable(
          shape.oneOf(
            ['lines', 'size', 'time'],
            'Why there may be more of them, or some of them are in the other log; null if the list is complete.',
          ),
        ),
      }),
    ),
    'Null if the build passed, or if one of the logs was deleted.',
  ),
});

export const durationOfBuild = ({ startedAt, finishedAt }: BuildRow) =>
  startedAt === null || finishedAt === null ? null : finishedAt - startedAt;

const change = <Value>(before: Value, after: Value) => ({ before, after, changed: before !== after });

const presentTest = ({ id, classname, name }: DifferentTest) => ({ ...idPair('id', id), classname, name });

export function presentDiff(build: BuildRow, diff: BuildDiff<BuildRow>) {
  const { base, inputs, tests, log } = diff;
  return {
    against: presentBuild(base),
    chosen: diff.chosen,
    causes: diff.causes,
    duration_ms: change(durationOfBuild(base), durationOfBuild(build)),
    exit_code: change(base.exitCode, build.exitCode),
    command: inputs ? change(inputs.command.before, inputs.command.after) : null,
    image: inputs
      ? {
          before: inputs.image.before.name,
          before_id: inputs.image.before.id,
          after: inputs.image.after.name,
          after_id: inputs.image.after.id,
          changed: inputs.image.isChanged,
        }
      : null,
    limits: inputs
      ? inputs.limits.map(({ name, before, after, isChanged }) => ({
          name,
          before,
          after,
          changed: isChanged,
        }))
      : null,
    variables: inputs
      ? {
          added: inputs.variables.added,
          removed: inputs.variables.removed,
          changed: inputs.variables.changed,
        }
      : null,
    dependencies: inputs
      ? inputs.dependencies.map(({ id, ...dependency }) => ({
          ...idPair('dependency_id', BigInt(id)),
          ...dependency,
        }))
      : null,
    commits: presentCommits(diff),
    tests: tests
      ? {
          new_failures: tests.failing.map(presentTest),
          new_failures_total: tests.failingTotal,
          fixed: tests.fixed.map(presentTest),
          fixed_total: tests.fixedTotal,
        }
      : null,
    log: log ? { lines: log.lines, cut_because: log.cutBecause } : null,
  };
}

function presentCommits({ range, isSameCommit }: BuildDiff<BuildRow>) {
  if (!range) return isSameCommit ? { list: [], total: 0, missing: 0, files: [], files_total: 0 } : null;
  return {
    list: range.commits.map(({ hash, subject, authorName, authoredDate }) => ({
      ref: hash,
      subject,
      scm_author_name: authorName,
      scm_authored_date: authoredDate,
    })),
    total: range.commitsTotal,
    missing: range.missingTotal,
    files: range.files,
    files_total: range.filesTotal,
  };
}
