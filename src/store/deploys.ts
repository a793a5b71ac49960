// Deploy strategies and deploys. transition.ts changes the state of a deploy.

import { and, asc, eq, isNull, sql } from 'drizzle-orm';
import { nameKey } from '../domain/names.ts';
import type { Db } from './database/db.ts';
import { findIn, listPage, type Page } from './database/page.ts';
import { deployStrategies, deploys, projects } from './database/schema.ts';
import { unfinished } from './database/unfinished.ts';
import { isNameTaken, keyOfChange } from './database/unique-name.ts';
import { type Deploy, moveDeploy } from './transition.ts';

export { type Deploy, insertDeploy as createDeploy } from './transition.ts';
export type DeployStrategy = typeof deployStrategies.$inferSelect;

export function listStrategies(db: Db, projectId: bigint, page: Page): DeployStrategy[] {
  return listPage(db, deployStrategies, eq(deployStrategies.projectId, projectId), page);
}

export const findStrategy = findIn(deployStrategies, deployStrategies.projectId);

export function isStrategyNameTaken(db: Db, projectId: bigint, name: string, own?: DeployStrategy): boolean {
  return isNameTaken(db, deployStrategies, { column: deployStrategies.projectId, id: projectId }, name, own);
}

export function createStrategy(db: Db, strategy: Omit<DeployStrategy, 'id' | 'nameKey'>): DeployStrategy {
  return db.write(() =>
    db.orm
      .insert(deployStrategies)
      .values({ ...strategy, id: db.newId(), nameKey: nameKey(strategy.name) })
      .returning()
      .get(),
  );
}

export function updateStrategy(
  db: Db,
  strategy: DeployStrategy,
  changes: Partial<Omit<DeployStrategy, 'id' | 'projectId' | 'nameKey'>>,
): DeployStrategy {
  return db.write(
    () =>
      db.orm
        .update(deployStrategies)
        .set({ name: strategy.name, ...changes, ...keyOfChange(strategy, changes.name) })
        .where(eq(deployStrategies.id, strategy.id))
        .returning()
        .get() as DeployStrategy,
  );
}

/** Its deploys stay readable. */
export function deleteStrategy(db: Db, id: bigint): void {
  db.write(() => db.orm.delete(deployStrategies).where(eq(deployStrategies.id, id)).run());
}

export function listDeploys(db: Db, projectId: bigint, page: Page): Deploy[] {
  return listPage(db, deploys, eq(deploys.projectId, projectId), page);
}

export const findDeploy = findIn(deploys, deploys.projectId);

/**
 * Cancels a waiting deploy at once. A running one ends after its push is aborted and the remote was asked whether the push
 * had arrived. A finished one is left alone. `because` ends a sentence, such as "by somebody".
 */
export function cancelDeploy(db: Db, deploy: Deploy, because: string): Deploy {
  return db.write(() => {
    const current = findDeploy(db, deploy.projectId, deploy.id);
    if (current?.state === 'enqueued')
      return moveDeploy(db, deploy.id, 'cancel', { cancelBecause: because }) ?? deploy;
    if (current?.state !== 'deploying' || current.cancelBecause !== null) return current ?? deploy;
    db.touch(`deploy:${deploy.id}`);
    db.touch(`project:${deploy.projectId}`);
    db.touch('queue');
    return db.orm
      .update(deploys)
      .set({ cancelBecause: because })
      .where(eq(deploys.id, deploy.id))
      .returning()
      .get() as Deploy;
  });
}

/** Waiting and running deploys of all projects, oldest first. */
export function listUnfinishedDeploys(db: Db, limit: number): { deploy: Deploy; projectName: string }[] {
  return db.orm
    .select({ deploy: deploys, projectName: projects.name })
    .from(deploys)
    .innerJoin(projects, and(eq(projects.id, deploys.projectId), isNull(projects.deletedAt)))
    .where(sql.raw(unfinished.deploy))
    .orderBy(asc(deploys.id))
    .limit(limit)
    .all();
}

/** A deploy of any project, for administrators. */
export function findAnyDeploy(db: Db, id: bigint): Deploy | undefined {
  return db.orm.select().from(deploys).where(eq(deploys.id, id)).get();
}
