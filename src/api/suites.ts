// Suite endpoints: suites with their rules, environment variables, dependencies and caches.

import {
  presentRule,
  presentSuite,
  presentSuiteDependency,
  presentVariable,
  ruleShape,
  suiteDependencyShape,
  suiteShape,
  variableShape,
} from '../contract/records/suite.ts';
import { destroyedShape } from '../contract/wire.ts';
import { checkVariableName, VARIABLE_BYTES } from '../domain/names.ts';
import { operators, subjects } from '../domain/rules.ts';
import { checkPathGlobs } from '../domain/text/path-glob.ts';
import { emptyCache } from '../store/caches.ts';
import type { Db } from '../store/database/db.ts';
import { findVisibleDependency } from '../store/dependencies.ts';
import type { UsedDependency } from '../store/dependency-use.ts';
import {
  attachDependency,
  createRule,
  createSuite,
  createVariable,
  deleteRule,
  deleteSuite,
  deleteVariable,
  detachDependency,
  findSuiteDependency,
  isSuiteNameTaken,
  isVariableNameTaken,
  listRules,
  listSuiteDependencies,
  listSuites,
  listVariables,
  moveDependencyLast,
  openVariable,
  updateSuite,
  updateVariable,
} from '../store/suites.ts';
import { endpoint, findMissingImage, listing } from './endpoint.ts';
import { cursor, imageField, optional, required, requiredId, requiredName } from './fields.ts';

const suiteFields = {
  name: requiredName({ doc: "Display name; unique among the project's suites.", example: 'Unit tests' }),
  command: required({
    doc: 'Runs the tests, with `sh -c`.',
    example: 'make check',
    multiline: true,
  }),
  description: optional({
    doc: 'Arbitrary text.',
    example: 'Fast tests without a database',
    multiline: true,
  }),
  image: imageField('The image to run in instead of the default one:'),
  artifacts: globsField(
    'The files to keep as artifacts, in addition to those in `/srv/artifacts`',
    'coverage/**\ndist/*.deb',
  ),
  reports: globsField(
    'The test reports in JUnit XML. They are kept as artifacts, and the results of their tests are shown',
    'build/reports/*.xml',
  ),
};

function globsField(doc: string, example: string) {
  return optional({
    doc: `${doc}: globs relative to \`/srv/project\`, one on each line, at most 50. \`*\` and \`?\` do not match \`/\`, \`**\` matches any number of directories, and the name of a directory matches everything in it.`,
    example,
    multiline: true,
    check: checkPathGlobs,
  });
}

const variableFields = {
  name: required({
    doc: 'Variable name, unique within the suite.',
    example: 'API_URL',
    check: checkVariableName,
  }),
  content: required({
    doc: 'The value, at most 131,072 bytes; may be empty. Stored encrypted, masked in logs. Linux passes a program at most 131,070 bytes of name and content together: a longer variable is set only in the shell that runs the command, not in the programs that it starts.',
    multiline: true,
    maxBytes: VARIABLE_BYTES,
    mayBeBlank: true,
  }),
};

const suiteDependencyRecord = (db: Db, suiteId: bigint, id: bigint) =>
  presentSuiteDependency(findSuiteDependency(db, suiteId, id) as UsedDependency);

export const suites = {
  list: endpoint({
    method: 'GET',
    path: '/projects/:project_id/suites',
    summary: "Lists the project's suites",
    access: 'sees',
    scope: 'suites',
    response: { list: suiteShape },
    handle: ({ db, project, page }) => listing(page, listSuites(db, project.id, page), presentSuite),
  }),
  create: endpoint({
    method: 'POST',
    path: '/projects/:project_id/suites',
    summary: 'Creates a suite',
    access: 'sees',
    scope: 'suites',
    fields: suiteFields,
    checkTogether: ({ name }, { db, project }) =>
      name !== undefined && isSuiteNameTaken(db, project.id, name) ? { name: ['already_exists'] } : {},
    findMissing: findMissingImage,
    response: { record: suiteShape, status: 201 },
    handle: ({ db, project, values }) =>
      presentSuite(
        createSuite(db, {
          projectId: project.id,
          name: values.name,
          description: values.description ?? '',
          command: values.command,
          image: values.image ?? null,
          artifacts: values.artifacts ?? '',
          reports: values.reports ?? '',
        }),
      ),
  }),
  get: endpoint({
    method: 'GET',
    path: '/projects/:project_id/suites/:suite_id',
    summary: 'Returns a suite',
    access: 'sees',
    scope: 'suites',
    response: { record: suiteShape },
    handle: ({ suite }) => presentSuite(suite),
  }),
  update: endpoint({
    method: 'PUT',
    path: '/projects/:project_id/suites/:suite_id',
    summary: 'Updates the fields that are sent',
    access: 'sees',
    scope: 'suites',
    fields: suiteFields,
    checkTogether: ({ name }, { db, suite }) =>
      name !== undefined && isSuiteNameTaken(db, suite.projectId, name, suite)
        ? { name: ['already_exists'] }
        : {},
    findMissing: findMissingImage,
    response: { record: suiteShape },
    handle: ({ db, suite, values }) =>
      presentSuite(
        updateSuite(db, suite, {
          ...(values.name !== undefined && { name: values.name }),
          ...(values.command !== undefined && { command: values.command }),
          ...(values.description !== undefined && { description: values.description }),
          ...(values.image !== undefined && { image: values.image === '' ? null : values.image }),
          ...(values.artifacts !== undefined && { artifacts: values.artifacts }),
          ...(values.reports !== undefined && { reports: values.reports }),
        }),
      ),
  }),
  delete: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id/suites/:suite_id',
    summary: 'Deletes a suite; its builds stay readable',
    access: 'sees',
    scope: 'suites',
    response: { record: destroyedShape },
    handle: ({ db, suite }) => {
      deleteSuite(db, suite);
      return { destroyed: true };
    },
  }),
  emptyCache: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id/suites/:suite_id/cache',
    summary: "Empties the suite's cache; a running build keeps its files until it ends",
    access: 'sees',
    scope: 'suites',
    response: { record: destroyedShape },
    handle: ({ db, suite, caller }) => {
      emptyCache(db, suite.id, `by ${caller.email}`);
      return { destroyed: true };
    },
  }),
  listRules: endpoint({
    method: 'GET',
    path: '/projects/:project_id/suites/:suite_id/rules',
    summary: "Lists the suite's rules; the suite runs for a commit if all of them hold",
    access: 'sees',
    scope: 'suites',
    response: { list: ruleShape },
    handle: ({ db, suite, page }) => listing(page, listRules(db, suite.id, page), presentRule),
  }),
  addRule: endpoint({
    method: 'POST',
    path: '/projects/:project_id/suites/:suite_id/rules',
    summary: 'Adds a rule',
    access: 'sees',
    scope: 'suites',
    fields: {
      subject: required({ doc: 'The attribute of the commit to compare.', oneOf: subjects }),
      operator: required({ doc: 'How to compare it.', oneOf: operators }),
      value: required({ doc: 'What to compare it with.', maxBytes: 4096, multiline: true }),
    },
    response: { record: ruleShape, status: 201 },
    handle: ({ db, suite, values }) => presentRule(createRule(db, { ...values, suiteId: suite.id })),
  }),
  removeRule: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id/suites/:suite_id/rules/:rule_id',
    summary: 'Removes a rule',
    access: 'sees',
    scope: 'suites',
    response: { record: destroyedShape },
    handle: ({ db, rule }) => {
      deleteRule(db, rule.id);
      return { destroyed: true };
    },
  }),
  listDependencies: endpoint({
    method: 'GET',
    path: '/projects/:project_id/suites/:suite_id/dependencies',
    summary: "Lists the suite's dependencies in the order in which they were attached",
    access: 'sees',
    scope: 'suites',
    query: { before: cursor('Only dependencies after this one.') },
    response: { list: suiteDependencyShape },
    // A suite has few dependencies, so they are not paged in the database.
    handle: ({ db, suite, page }) => {
      const attached = listSuiteDependencies(db, suite.id);
      const at = attached.findIndex(({ id }) => id === page.before);
      const rest = page.before === undefined ? attached : at < 0 ? [] : attached.slice(at + 1);
      return listing(page, rest, presentSuiteDependency);
    },
  }),
  attachDependency: endpoint({
    method: 'POST',
    path: '/projects/:project_id/suites/:suite_id/dependencies',
    summary: "Attaches a dependency of the project's owner, or a shared one",
    access: 'sees',
    scope: 'suites',
    fields: { dependency_id: requiredId('The dependency.') },
    response: { record: suiteDependencyShape, status: 201 },
    checkTogether: ({ dependency_id: id }, { db, suite }) =>
      id !== undefined && findSuiteDependency(db, suite.id, id) ? { dependency_id: ['already_exists'] } : {},
    findMissing: ({ dependency_id: id }, { db, project }) =>
      findVisibleDependency(db, project.ownerId, id) ? [] : ['dependency_id'],
    handle: ({ db, suite, values }) => {
      attachDependency(db, suite.id, values.dependency_id);
      return presentSuiteDependency(
        findSuiteDependency(db, suite.id, values.dependency_id) as UsedDependency,
      );
    },
  }),
  detachDependency: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id/suites/:suite_id/dependencies/:dependency_id',
    summary: 'Detaches a dependency',
    access: 'sees',
    scope: 'suites',
    response: { record: destroyedShape },
    handle: ({ db, suite, dependency }) => {
      detachDependency(db, suite.id, dependency.id);
      return { destroyed: true };
    },
  }),
  putDependencyLast: endpoint({
    method: 'POST',
    path: '/projects/:project_id/suites/:suite_id/dependencies/:dependency_id/last',
    summary:
      'Moves a dependency to the end. If two dependencies have a file with the same path, the earlier one wins',
    access: 'sees',
    scope: 'suites',
    response: { record: suiteDependencyShape },
    handle: ({ db, suite, dependency }) => {
      moveDependencyLast(db, suite.id, dependency.id);
      return suiteDependencyRecord(db, suite.id, dependency.id);
    },
  }),
  listVariables: endpoint({
    method: 'GET',
    path: '/projects/:project_id/suites/:suite_id/environment_variables',
    summary: "Lists the suite's environment variables, decrypted",
    access: 'sees',
    scope: 'suites',
    response: { list: variableShape },
    handle: ({ db, suite, page }) =>
      listing(page, listVariables(db, suite.id, page), row => presentVariable(openVariable(db, row))),
  }),
  addVariable: endpoint({
    method: 'POST',
    path: '/projects/:project_id/suites/:suite_id/environment_variables',
    summary: 'Adds an environment variable',
    access: 'sees',
    scope: 'suites',
    fields: variableFields,
    checkTogether: ({ name }, { db, suite }) =>
      name !== undefined && isVariableNameTaken(db, suite.id, name) ? { name: ['already_exists'] } : {},
    response: { record: variableShape, status: 201 },
    handle: ({ db, suite, values }) =>
      presentVariable(createVariable(db, suite.id, values.name, values.content)),
  }),
  updateVariable: endpoint({
    method: 'PUT',
    path: '/projects/:project_id/suites/:suite_id/environment_variables/:variable_id',
    summary: 'Updates the fields that are sent',
    access: 'sees',
    scope: 'suites',
    fields: variableFields,
    checkTogether: ({ name }, { db, suite, variable }) =>
      name !== undefined && isVariableNameTaken(db, suite.id, name, variable.id)
        ? { name: ['already_exists'] }
        : {},
    response: { record: variableShape },
    handle: ({ db, variable, values: { name, content } }) =>
      presentVariable(updateVariable(db, variable.id, { name, content })),
  }),
  removeVariable: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id/suites/:suite_id/environment_variables/:variable_id',
    summary: 'Removes an environment variable',
    access: 'sees',
    scope: 'suites',
    response: { record: destroyedShape },
    handle: ({ db, variable }) => {
      deleteVariable(db, variable.id);
      return { destroyed: true };
    },
  }),
};
