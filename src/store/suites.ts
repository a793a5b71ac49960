// Suites with their rules, environment variables and dependencies.

import { and, asc, eq, gt, inArray, sql } from 'drizzle-orm';
import { nameKey } from '../domain/names.ts';
import { type Db, prepared } from './database/db.ts';
import { dependencies, keptVersions, suiteDependencies } from './database/dependency-schema.ts';
import { findIn, listPage, type Page } from './database/page.ts';
import { environmentVariables, suiteRules, suites } from './database/schema.ts';
import { isNameTaken, keyOfChange } from './database/unique-name.ts';
import { asUsed, type Dependency, type UsedDependency } from './dependency-use.ts';

export type Suite = typeof suites.$inferSelect;
type SuiteRule = typeof suiteRules.$inferSelect;
export type Variable = { id: bigint; name: string; content: string };
export type SealedVariable = typeof environmentVariables.$inferSelect;

const contentCell = (row: bigint) => ({ table: 'environment_variables', column: 'content', row });

export function listSuites(db: Db, projectId: bigint, page: Page): Suite[] {
  return listPage(db, suites, eq(suites.projectId, projectId), page);
}

/** In order of creation. */
export function listAllSuites(db: Db, projectId: bigint): Suite[] {
  return db.orm.select().from(suites).where(eq(suites.projectId, projectId)).orderBy(asc(suites.id)).all();
}

/** The suites after `after`, in order of creation. */
export function listSuitesAfter(db: Db, projectId: bigint, after: bigint, limit: number): Suite[] {
  return db.orm
    .select()
    .from(suites)
    .where(and(eq(suites.projectId, projectId), gt(suites.id, after)))
    .orderBy(asc(suites.id))
    .limit(limit)
    .all();
}

const allNames = prepared(db =>
  db.orm
    .select({ id: suites.id, name: suites.name })
    .from(suites)
    .where(eq(suites.projectId, sql.placeholder('projectId')))
    .orderBy(asc(suites.id))
    .prepare(),
);

/** In order of creation. */
export function listSuiteNames(db: Db, projectId: bigint): { id: bigint; name: string }[] {
  return allNames(db).all({ projectId });
}

export const findSuite = findIn(suites, suites.projectId);

export function isSuiteNameTaken(db: Db, projectId: bigint, name: string, own?: Suite): boolean {
  return isNameTaken(db, suites, { column: suites.projectId, id: projectId }, name, own);
}

export function createSuite(db: Db, suite: Omit<typeof suites.$inferInsert, 'id' | 'nameKey'>): Suite {
  return db.write(() => {
    db.touch(`project:${suite.projectId}`);
    return db.orm
      .insert(suites)
      .values({ ...suite, id: db.newId(), nameKey: nameKey(suite.name) })
      .returning()
      .get();
  });
}

export function updateSuite(
  db: Db,
  suite: Suite,
  changes: Partial<Omit<Suite, 'id' | 'projectId' | 'nameKey'>>,
): Suite {
  return db.write(() => {
    db.touch(`project:${suite.projectId}`);
    return db.orm
      .update(suites)
      .set({ name: suite.name, ...changes, ...keyOfChange(suite, changes.name) })
      .where(eq(suites.id, suite.id))
      .returning()
      .get() as Suite;
  });
}

/** Its builds stay readable. */
export function deleteSuite(db: Db, suite: Suite): void {
  db.write(() => {
    db.orm.delete(suites).where(eq(suites.id, suite.id)).run();
    db.touch(`project:${suite.projectId}`);
    db.touch('queue');
  });
}

export function listRules(db: Db, suiteId: bigint, page: Page): SuiteRule[] {
  return listPage(db, suiteRules, eq(suiteRules.suiteId, suiteId), page);
}

const allRules = prepared(db =>
  db.orm
    .select()
    .from(suiteRules)
    .where(eq(suiteRules.suiteId, sql.placeholder('suiteId')))
    .orderBy(asc(suiteRules.id))
    .prepare(),
);

export function listAllRules(db: Db, suiteId: bigint): SuiteRule[] {
  return allRules(db).all({ suiteId });
}

export const findRule = findIn(suiteRules, suiteRules.suiteId);

export function createRule(db: Db, rule: Omit<SuiteRule, 'id'>): SuiteRule {
  return db.write(() =>
    db.orm
      .insert(suiteRules)
      .values({ ...rule, id: db.newId() })
      .returning()
      .get(),
  );
}

export function deleteRule(db: Db, id: bigint): void {
  db.write(() => db.orm.delete(suiteRules).where(eq(suiteRules.id, id)).run());
}

/** Throws SealedValueError if the value was changed. A list opens each variable separately, so that only that one is affected. */
export const openVariable = (db: Db, row: SealedVariable): Variable => ({
  id: row.id,
  name: row.name,
  content: db.vault.open(row.content, contentCell(row.id)),
});

export function listVariables(db: Db, suiteId: bigint, page: Page): SealedVariable[] {
  return listPage(db, environmentVariables, eq(environmentVariables.suiteId, suiteId), page);
}

const variablesOfSuite = prepared(db =>
  db.orm
    .select()
    .from(environmentVariables)
    .where(eq(environmentVariables.suiteId, sql.placeholder('suiteId')))
    .orderBy(asc(environmentVariables.id))
    .prepare(),
);

export function listSealedVariables(db: Db, suiteId: bigint): SealedVariable[] {
  return variablesOfSuite(db).all({ suiteId });
}

/** Throws if one variable cannot be opened: a build must not run without it. */
export function listAllVariables(db: Db, suiteId: bigint): Variable[] {
  return listSealedVariables(db, suiteId).map(row => openVariable(db, row));
}

export const findVariable = findIn(environmentVariables, environmentVariables.suiteId);

export function isVariableNameTaken(db: Db, suiteId: bigint, name: string, except?: bigint): boolean {
  const found = db.orm
    .select({ id: environmentVariables.id })
    .from(environmentVariables)
    .where(and(eq(environmentVariables.suiteId, suiteId), eq(environmentVariables.name, name)))
    .get();
  return found !== undefined && found.id !== except;
}

export function createVariable(db: Db, suiteId: bigint, name: string, content: string): Variable {
  return db.write(() => {
    const id = db.newId();
    db.orm
      .insert(environmentVariables)
      .values({ id, suiteId, name, content: db.vault.seal(content, contentCell(id)) })
      .run();
    return { id, name, content };
  });
}

export function updateVariable(
  db: Db,
  id: bigint,
  changes: { name: string | undefined; content: string | undefined },
): Variable {
  return db.write(() => {
    const row = db.orm
      .update(environmentVariables)
      .set({
        // An UPDATE needs at least one column, even if the PUT changes nothing.
        id,
        ...(changes.name !== undefined && { name: changes.name }),
        ...(changes.content !== undefined && { content: db.vault.seal(changes.content, contentCell(id)) }),
      })
      .where(eq(environmentVariables.id, id))
      .returning()
      .get() as SealedVariable;
    return openVariable(db, row);
  });
}

export function deleteVariable(db: Db, id: bigint): void {
  db.write(() => db.orm.delete(environmentVariables).where(eq(environmentVariables.id, id)).run());
}

const dependenciesOfSuite = prepared(db =>
  db.orm
    .select({ dependency: dependencies, kept: keptVersions })
    .from(suiteDependencies)
    .innerJoin(dependencies, eq(dependencies.id, suiteDependencies.dependencyId))
    .leftJoin(keptVersions, eq(keptVersions.id, suiteDependencies.keptVersionId))
    .where(eq(suiteDependencies.suiteId, sql.placeholder('suiteId')))
    .orderBy(asc(suiteDependencies.id))
    .prepare(),
);

/** In the order in which they were attached. All other lists are newest first. */
export function listSuiteDependencies(db: Db, suiteId: bigint): UsedDependency[] {
  return dependenciesOfSuite(db).all({ suiteId }).map(asUsed);
}

/** The dependencies of all suites of the project, each once. */
export function listProjectDependencies(db: Db, projectId: bigint): Dependency[] {
  const used = db.orm
    .select({ id: suiteDependencies.dependencyId })
    .from(suiteDependencies)
    .innerJoin(suites, eq(suites.id, suiteDependencies.suiteId))
    .where(eq(suites.projectId, projectId));
  return db.orm
    .select()
    .from(dependencies)
    .where(inArray(dependencies.id, used))
    .orderBy(asc(dependencies.id))
    .all();
}

export function findSuiteDependency(
  db: Db,
  suiteId: bigint,
  dependencyId: bigint,
): UsedDependency | undefined {
  return listSuiteDependencies(db, suiteId).find(({ id }) => id === dependencyId);
}

export function attachDependency(db: Db, suiteId: bigint, dependencyId: bigint): void {
  db.write(() => db.orm.insert(suiteDependencies).values({ id: db.newId(), suiteId, dependencyId }).run());
}

const use = (suiteId: bigint, dependencyId: bigint) =>
  and(eq(suiteDependencies.suiteId, suiteId), eq(suiteDependencies.dependencyId, dependencyId));

export function detachDependency(db: Db, suiteId: bigint, dependencyId: bigint): void {
  db.write(() => db.orm.delete(suiteDependencies).where(use(suiteId, dependencyId)).run());
}

/** Moves a dependency to the end. The suite keeps the version that it has. */
export function moveDependencyLast(db: Db, suiteId: bigint, dependencyId: bigint): void {
  db.write(() =>
    db.orm.update(suiteDependencies).set({ id: db.newId() }).where(use(suiteId, dependencyId)).run(),
  );
}
