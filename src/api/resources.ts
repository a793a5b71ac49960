// Finds the rows that the ids in a path name. A row that the caller may not see is treated as missing.

import type { Caller } from '../domain/access.ts';
import { parseId } from '../domain/id.ts';
import { refusal } from '../domain/refusal.ts';
import { findBuild, findBuildRequest, findCommit } from '../store/builds.ts';
import type { Db } from '../store/database/db.ts';
import { findVisibleDependency } from '../store/dependencies.ts';
import { findDeploy, findStrategy } from '../store/deploys.ts';
import { findDelivery, findNotification } from '../store/notifications.ts';
import { findCollaborator, findVisibleProject } from '../store/projects.ts';
import { findBuildArtifact } from '../store/result/build-artifacts.ts';
import { findTest } from '../store/result/tests.ts';
import { findSnapshot } from '../store/snapshots.ts';
import { findRule, findSuite, findSuiteDependency, findVariable } from '../store/suites.ts';
import { findTrigger } from '../store/trigger/triggers.ts';

type Rows = { [name: string]: { id: bigint } };
type Find<Row> = (db: Db, id: bigint, parents: Rows, caller: Caller) => Row | undefined;

/** Finds a row by its id and that of a parent earlier in the path. */
const below =
  <Row>(parent: string, find: (db: Db, parentId: bigint, id: bigint) => Row | undefined): Find<Row> =>
  (db, id, parents) => {
    const { [parent]: row } = parents;
    return row && find(db, row.id, id);
  };

/** `:build_request_id` in a path is the row `buildRequest`. */
const finders = {
  project: (db: Db, id: bigint, _: Rows, caller: Caller) => findVisibleProject(db, caller.accountId, id),
  collaborator: below('project', findCollaborator),
  buildRequest: below('project', findBuildRequest),
  commit: below('project', findCommit),
  snapshot: below('project', findSnapshot),
  build: below('project', findBuild),
  artifact: below('build', findBuildArtifact),
  suite: below('project', findSuite),
  test: below('project', findTest),
  rule: below('suite', findRule),
  variable: below('suite', findVariable),
  deployStrategy: below('project', findStrategy),
  deploy: below('project', findDeploy),
  notification: below('project', findNotification),
  delivery: below('notification', findDelivery),
  trigger: below('project', findTrigger),
  dependency: (db: Db, id: bigint, { suite }: Rows, caller: Caller) =>
    suite ? findSuiteDependency(db, suite.id, id) : findVisibleDependency(db, caller.accountId, id),
};

export type Resources = {
  [Name in keyof typeof finders]: NonNullable<ReturnType<(typeof finders)[Name]>>;
};

/** The parameters of a path: `project_id` and `suite_id` of `/projects/:project_id/suites/:suite_id`. */
export type ParamsIn<Path extends string> = Path extends `${string}:${infer Rest}`
  ? Rest extends `${infer Name}/${infer More}`
    ? Name | ParamsIn<`/${More}`>
    : Rest
  : never;
type Camel<Name> = Name extends `${infer First}_${infer Rest}` ? `${First}${Capitalize<Camel<Rest>>}` : Name;
type NameOf<Param> = Param extends `${infer Name}_id` ? Camel<Name> : never;
/** The resources that a path names: `project` and `suite`. */
export type NamesIn<Path extends string> = Extract<NameOf<ParamsIn<Path>>, keyof Resources>;
export type ResourcesIn<Path extends string> = Pick<Resources, NamesIn<Path>>;

export type FindResources<Path extends string> = (
  db: Db,
  caller: Caller,
  params: Readonly<Record<string, string>>,
) => ResourcesIn<Path>;

/** Parses a path once. The returned function finds its rows in order and throws `not_found` if one is missing. */
export function resourcesOf<Path extends string>(path: Path): FindResources<Path> {
  const steps = [...path.matchAll(/:(\w+)_id\b/g)].map(([, segment = '']) => {
    const name = segment.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
    const find = (finders as Record<string, Find<{ id: bigint }>>)[name];
    if (!find) throw new Error(`${path} names ${name}, which is not a resource`);
    return { param: `${segment}_id`, name, find };
  });
  return (db, caller, params) => {
    const found: Rows = {};
    for (const { param, name, find } of steps) {
      const id = parseId(params[param] ?? '');
      const row = id === undefined ? undefined : find(db, id, found, caller);
      if (!row) throw refusal('not_found');
      found[name] = row;
    }
    return found as ResourcesIn<Path>;
  };
}

/** The account whose standing is checked: the owner of the project, or else of the dependency. */
export function ownerOf(found: Partial<Resources>): bigint | undefined {
  return found.project?.ownerId ?? found.dependency?.ownerId;
}
