// The records of suites, their rules, variables and dependencies: their schemas, and functions that create them from rows.

import { idPair, ids, record, shape, wireTime } from '../wire.ts';
import { idRef, keptSince, withRef } from './dependency.ts';

export const suiteShape = record(
  'Suite',
  {
    ...ids,
    name: shape.string('Display name.'),
    description: shape.string('Arbitrary text.'),
    command: shape.string('Runs the tests.'),
    image: shape.string('Present when set: the image that the suite runs in instead of the default one.'),
    artifacts: shape.string('Present when set: globs of the files to keep, one on each line.'),
    reports: shape.string('Present when set: globs of the test reports, one on each line.'),
  },
  ['image', 'artifacts', 'reports'],
);

export function presentSuite(suite: {
  id: bigint;
  name: string;
  description: string;
  command: string;
  image: string | null;
  artifacts: string;
  reports: string;
}) {
  return {
    ...idPair('id', suite.id),
    name: suite.name,
    description: suite.description,
    command: suite.command,
    ...(suite.image !== null && { image: suite.image }),
    ...(suite.artifacts !== '' && { artifacts: suite.artifacts }),
    ...(suite.reports !== '' && { reports: suite.reports }),
  };
}

export const ruleShape = record('SuiteRule', {
  ...ids,
  subject: shape.string('What is compared: `commit.<attribute>`.'),
  operator: shape.string('How it is compared.'),
  value: shape.string('What it is compared with.'),
});

export function presentRule(rule: { id: bigint; subject: string; operator: string; value: string }) {
  return { ...idPair('id', rule.id), subject: rule.subject, operator: rule.operator, value: rule.value };
}

export const variableShape = record('EnvironmentVariable', {
  ...ids,
  name: shape.string('Variable name.'),
  content: shape.string('The value, decrypted. Stored encrypted.'),
});

export function presentVariable(variable: { id: bigint; name: string; content: string }) {
  return { ...idPair('id', variable.id), name: variable.name, content: variable.content };
}

export const suiteDependencyShape = record(
  'SuiteDependency',
  {
    ...idRef,
    name: shape.string('Name of the dependency.'),
    prefix: shape.string('Where its compiled artifacts are.'),
    launch_command: shape.string('Starts it before the suite.'),
    ...keptSince,
  },
  ['kept_since'],
);

export function presentSuiteDependency(dependency: {
  id: bigint;
  name: string;
  prefix: string;
  launchCommand: string;
  kept: { createdAt: number } | null;
}) {
  return {
    ...withRef(dependency),
    name: dependency.name,
    prefix: dependency.prefix,
    launch_command: dependency.launchCommand,
    ...(dependency.kept && { kept_since: wireTime(dependency.kept.createdAt) }),
  };
}
