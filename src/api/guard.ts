// From the path's ids to rows that the caller may see. What it may not see is as if it were not there.

import type { Caller } from '../domain/access.ts';
import { parseId } from '../domain/id.ts';
import { refusal } from '../domain/refusal.ts';
import { findBuild, findBuildRequest, findCommit } from '../store/builds.ts';
import type { Db } from '../store/database/db.ts';
import { findVisibleDependency } from '../store/dependencies.ts';
import { findDeploy, findStrategy } from '../store/deploys.ts';
import { findDelivery, findNotification } from '../store/notifications.ts';
import { findCollaborator, findVisibleProject } from '../store/projects.ts';
import { findRule, findSuite, findSuiteDependency, findVariable } from '../store/suites.ts';
import type { Resources } from './endpoint.ts';

type Found = Partial<Resources>;
type Finder = (db: Db, id: bigint, found: Resources, caller: Caller) => Found | undefined;

/** Wraps a row that was found under the name it has in a call. */
function as<Name extends keyof Resources>(name: Name, row: Resources[Name] | undefined): Found | undefined {
  return row && ({ [name]: row } as unknown as Found);
}

/** Each id segment of a path, in the order in which they may stand in it. */
const finders: Record<string, Finder> = {
  project_id: (db, id, _, caller) => as('project', findVisibleProject(db, caller.accountId, id)),
  collaborator_id: (db, id, { project }) => as('collaborator', findCollaborator(db, project.id, id)),
  build_request_id: (db, id, { project }) => as('buildRequest', findBuildRequest(db, project.id, id)),
  commit_id: (db, id, { project }) => as('commit', findCommit(db, project.id, id)),
  build_id: (db, id, { project }) => as('build', findBuild(db, project.id, id)),
  suite_id: (db, id, { project }) => as('suite', findSuite(db, project.id, id)),
  rule_id: (db, id, { suite }) => as('rule', findRule(db, suite.id, id)),
  variable_id: (db, id, { suite }) => as('variable', findVariable(db, suite.id, id)),
  deploy_strategy_id: (db, id, { project }) => as('strategy', findStrategy(db, project.id, id)),
  deploy_id: (db, id, { project }) => as('deploy', findDeploy(db, project.id, id)),
  notification_id: (db, id, { project }) => as('notification', findNotification(db, project.id, id)),
  delivery_id: (db, id, { notification }) => as('delivery', findDelivery(db, notification.id, id)),
  dependency_id: (db, id, { suite }, caller) =>
    suite
      ? as('suiteDependency', findSuiteDependency(db, suite.id, id))
      : as('dependency', findVisibleDependency(db, caller.accountId, id)),
};

export function findResources(
  db: Db,
  caller: Caller,
  names: readonly string[],
  params: Record<string, string>,
): Resources {
  const found: Found = {};
  for (const name of names) {
    const id = parseId(params[name] ?? '');
    const more = id === undefined ? undefined : finders[name]?.(db, id, found as Resources, caller);
    if (!more) throw refusal('not_found');
    Object.assign(found, more);
  }
  return found as Resources;
}

/** Whose standing and ownership count: the project's owner, else the dependency's; undefined where nothing exists yet. */
export function ownerOf(found: Found): bigint | undefined {
  return found.project?.ownerId ?? found.dependency?.ownerId;
}
