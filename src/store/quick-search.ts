// Finds projects, suites, dependencies and recent builds that an account may see by words of their names, for the quick
// switcher. Names are read from indexes in batches, so that other requests run in between.

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { BuildState, ProjectState } from '../domain/build.ts';
import { nameKey } from '../domain/names.ts';
import { cached, type Db, jsonOf, prepared } from './database/db.ts';

export type FoundProject = { id: bigint; name: string; state: ProjectState };
export type FoundSuite = { id: bigint; projectId: bigint; name: string };
export type FoundBuild = {
  id: bigint;
  projectId: bigint;
  suiteName: string;
  commitRef: string;
  state: BuildState;
  createdAt: number;
};
export type FoundNames = {
  projects: FoundProject[];
  suites: FoundSuite[];
  builds: FoundBuild[];
  dependencies: { id: bigint; name: string }[];
  /** Names of the projects of suites and builds. */
  projectNames: Map<bigint, string>;
  /** False if there were too many suites to look at all of them. */
  isComplete: boolean;
};

const MAX_PROJECTS = 5_000;
const MAX_WORDS = 6;
const MAX_SHARED = 1_000;
/** Of each kind. */
const RESULTS = 8;
/** Enough to choose the best ones from. */
const CANDIDATES = 100;
/** Projects whose suites are read at once: at 200 suites each, about 3 ms. */
const BATCH = 50;
const SEARCH_MS = 100;

const ACCOUNTS_CACHED = 20;

type ProjectKey = readonly [id: bigint, key: string];
const projectKeyRows = prepared(db =>
  db.sqlite
    .prepare<[bigint, bigint], ProjectKey>(
      `SELECT id, name_key FROM projects WHERE owner_id = ?
       UNION ALL SELECT p.id, p.name_key FROM collaborators AS c JOIN projects AS p ON p.id = c.project_id
       WHERE c.account_id = ? LIMIT ${MAX_PROJECTS}`,
    )
    .raw(),
);
/** The newest first. Each key press asks for them. */
const listProjectKeys = cached(
  (accountId: bigint) => accountId,
  (db, accountId): readonly ProjectKey[] =>
    projectKeyRows(db)
      .all(accountId, accountId)
      .sort((a, b) => (a[0] < b[0] ? 1 : -1)),
  ACCOUNTS_CACHED,
);
const projectById = prepared(db =>
  db.sqlite
    .prepare<[bigint], [string, ProjectState]>(
      'SELECT name, build_state FROM projects WHERE id = ? AND deleted_at IS NULL',
    )
    .raw(),
);

/** That a name contains every word; unused words are empty, and contained in every name. */
const hasWords = (table: string) =>
  Array.from({ length: MAX_WORDS }, () => `instr(${table}.name_key, ?) > 0`).join(' AND ');
const padded = (words: readonly string[]) => Array.from({ length: MAX_WORDS }, (_, at) => words[at] ?? '');

/** By the index that has the names in it. */
const suitesOf = prepared(db =>
  db.sqlite
    .prepare<string[], [bigint, bigint, string]>(
      `SELECT s.id, s.project_id, s.name FROM json_each(?) AS p CROSS JOIN suites AS s INDEXED BY suites_name
       ON s.project_id = p.value WHERE ${hasWords('s')} LIMIT ${CANDIDATES}`,
    )
    .raw(),
);
const ownDependencies = prepared(db =>
  db.sqlite
    .prepare<[bigint, ...string[]], [bigint, string]>(
      `SELECT d.id, d.name FROM dependencies AS d WHERE d.owner_id = ? AND ${hasWords('d')} LIMIT ${CANDIDATES}`,
    )
    .raw(),
);
const sharedDependencies = prepared(db =>
  db.sqlite
    .prepare<string[], [bigint, string]>(
      `SELECT d.id, d.name FROM (SELECT id, name, name_key FROM dependencies WHERE shared = 1 ORDER BY id DESC
       LIMIT ${MAX_SHARED}) AS d WHERE ${hasWords('d')} LIMIT ${CANDIDATES}`,
    )
    .raw(),
);
const buildFields = 'id, project_id, suite_name, commit_ref, build_state, created_at';
type BuildRow = [bigint, bigint, string, string, BuildState, bigint];
const newestOfSuite = prepared(db =>
  db.sqlite
    .prepare<[bigint], BuildRow>(
      `SELECT ${buildFields} FROM builds WHERE suite_id = ? AND local = 0 ORDER BY id DESC LIMIT 1`,
    )
    .raw(),
);
const newestOfProject = prepared(db =>
  db.sqlite
    .prepare<[bigint], BuildRow>(
      `SELECT ${buildFields} FROM builds WHERE project_id = ? ORDER BY id DESC LIMIT 2`,
    )
    .raw(),
);

/** What has all words of `text` in its name, the best first. A suite may have some of them in the name of its project. */
export async function findByName(db: Db, accountId: bigint, text: string): Promise<FoundNames> {
  const words = [...new Set(text.split(/\s+/).map(nameKey))].filter(Boolean).slice(0, MAX_WORDS);
  const { projects, byMissing } = matchProjects(db, accountId, words);
  const { suites, isComplete } = await findSuites(db, words, byMissing);
  const projectNames = new Map(projects.map(({ id, name }) => [id, name]));
  const isThere = (projectId: bigint) => {
    const known = projectNames.get(projectId) ?? projectById(db).get(projectId)?.[0];
    if (known !== undefined) projectNames.set(projectId, known);
    return known !== undefined;
  };
  const found = suites.filter(({ projectId }) => isThere(projectId)).slice(0, RESULTS);
  return {
    projects,
    suites: found,
    builds: findBuilds(db, projects, found),
    dependencies: findDependencies(db, accountId, words),
    projectNames,
    isComplete,
  };
}

/** The projects with all words in their names, and the ids of all projects by the words that are not in theirs. */
function matchProjects(db: Db, accountId: bigint, words: readonly string[]) {
  const byMissing = new Map<string, bigint[]>();
  const matching: { id: bigint; key: string }[] = [];
  for (const [id, key] of listProjectKeys(db, accountId)) {
    const missing = words.filter(word => !key.includes(word));
    if (missing.length === 0) matching.push({ id, key });
    const group = missing.join(' ');
    const ids = byMissing.get(group);
    if (ids) ids.push(id);
    else byMissing.set(group, [id]);
  }
  const projects: FoundProject[] = [];
  for (const { id } of byRank(matching, words, ({ key }) => key)) {
    const [name, state] = projectById(db).get(id) ?? [];
    if (name !== undefined && state !== undefined) projects.push({ id, name, state });
    if (projects.length === RESULTS) break;
  }
  return { projects, byMissing };
}

/** Names that begin with a word come first. Otherwise the order stays. */
function byRank<T>(items: readonly T[], words: readonly string[], keyOf: (item: T) => string): T[] {
  const isFirst = (item: T) => words.some(word => keyOf(item).startsWith(word));
  return [...items.filter(isFirst), ...items.filter(item => !isFirst(item))];
}

/** Suites of projects that have most of the words are first. */
async function findSuites(
  db: Db,
  words: readonly string[],
  byMissing: ReadonlyMap<string, readonly bigint[]>,
): Promise<{ suites: FoundSuite[]; isComplete: boolean }> {
  const suites: FoundSuite[] = [];
  if (words.length === 0) return { suites, isComplete: true };
  const deadline = performance.now() + SEARCH_MS;
  const groups = [...byMissing].map(([group, ids]) => ({ missing: group.split(' ').filter(Boolean), ids }));
  for (const { missing, ids } of groups.sort((a, b) => a.missing.length - b.missing.length)) {
    const found: FoundSuite[] = [];
    for (let at = 0; at < ids.length && found.length < CANDIDATES; at += BATCH) {
      if (performance.now() > deadline) return { suites: [...suites, ...found], isComplete: false };
      const batch = jsonOf(ids.slice(at, at + BATCH));
      for (const [id, projectId, name] of suitesOf(db).all(batch, ...padded(missing)))
        found.push({ id, projectId, name });
      await nextTurn();
    }
    suites.push(...byRank(found, missing, ({ name }) => nameKey(name)));
    if (suites.length >= CANDIDATES) break;
  }
  return { suites, isComplete: true };
}

/** The newest builds of what was found, the newest first. */
function findBuilds(db: Db, projects: readonly FoundProject[], suites: readonly FoundSuite[]): FoundBuild[] {
  const rows = [
    ...suites.flatMap(({ id }) => newestOfSuite(db).all(id)),
    ...projects.flatMap(({ id }) => newestOfProject(db).all(id)),
  ];
  const builds = rows.map(([id, projectId, suiteName, commitRef, state, createdAt]) => ({
    id,
    projectId,
    suiteName,
    commitRef,
    state,
    createdAt: Number(createdAt),
  }));
  return [...new Map(builds.map(build => [build.id, build])).values()]
    .sort((a, b) => (a.id < b.id ? 1 : -1))
    .slice(0, RESULTS);
}

function findDependencies(db: Db, accountId: bigint, words: readonly string[]) {
  if (words.length === 0) return [];
  const rows = [
    ...ownDependencies(db).all(accountId, ...padded(words)),
    ...sharedDependencies(db).all(...padded(words)),
  ];
  const found = [...new Map(rows)].map(([id, name]) => ({ id, name }));
  return byRank(found, words, ({ name }) => nameKey(name)).slice(0, RESULTS);
}
