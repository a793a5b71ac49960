// Compares the refs of a repository with those that are known, and records the changes. Hooks may report changes at the
// same time, so each transaction leaves out what they have reported since the host was asked.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { idAt } from '../../domain/id.ts';
import { type LookPlan, planLook, type SeenChange } from '../../domain/trigger/look-plan.ts';
import { compileFilters, parseRef, type TriggerOptions } from '../../domain/trigger/trigger.ts';
import type { RemoteRefs } from '../../engine/git/ls-remote.ts';
import type { Db } from '../../store/database/db.ts';
import { findProject, type Project } from '../../store/projects.ts';
import {
  findLook,
  LOOK,
  listLooking,
  listReplacedHashes,
  listSeenRefs,
  observeRef,
  recordFiring,
  recordLook,
  rememberRefs,
  resolveFiring,
  seenHash,
} from '../../store/trigger/firings.ts';
import { type Claim, endLook, nextLookAt, scheduleLook } from '../../store/trigger/looks.ts';
import { type Firing, findAnyTrigger, listRefTriggers, type Trigger } from '../../store/trigger/triggers.ts';

export type Look = { trigger: Trigger; project: Project; claim: Claim; answer: RemoteRefs };

const PAGE_ROWS = 500;
const COMPARED_AT_ONCE = 10_000;
const BATCH_ROWS = 25;
/** After it has sent a hook, a host may still answer with an older state for so long. */
const HOST_LAG_MS = 30_000;
const LOOK_AGAIN_S = 10;

/** Undefined if the look was discarded, because its trigger or its project has changed meanwhile. */
export async function applyLook(
  db: Db,
  look: Look,
  onFiring: (firing: Firing) => void,
): Promise<'unchanged' | 'changed' | undefined> {
  const { trigger, project, claim, answer } = look;
  const waiting = listLooking(db, project.id).filter(({ id }) => id < claim.startId);
  const last = findLook(db, project);
  if (last?.refsDigest === answer.digest && waiting.length === 0) {
    endLook(db, trigger, claim, nextLookAt(db, trigger));
    return 'unchanged';
  }
  const isFirst = last === undefined;
  const changes = await listChanges(db, project.id, answer.refs);
  const plan = planFor(db, look, changes, waiting, isFirst);
  const settled = waiting.filter(firing => isSettled(firing, answer, db.now()));
  const hasUnsettled = settled.length < waiting.length;
  const staleRefs = new Set<string>();

  const isCurrent = () =>
    findAnyTrigger(db, trigger.id)?.enabled === trigger.enabled &&
    findProject(db, project.id)?.repositoryUrl === project.repositoryUrl;
  /** Leaves out what hooks have reported since, or shortly before. */
  const withoutStale = (batch: readonly SeenChange[]) => {
    const lag = idAt(HOST_LAG_MS + db.now()) - idAt(db.now());
    const replaced = listReplacedHashes(db, project.id, claim.startId - lag);
    return batch.filter(({ ref, after }) => {
      if (seenHash(db, project.id, ref) === (after ?? undefined)) return false;
      const hashes = replaced.get(ref);
      const isStale = hashes !== undefined && (isFirst || hashes.has(after));
      if (isStale) staleRefs.add(ref);
      return !isStale;
    });
  };
  const observe = (change: SeenChange, ignored: 'too_many' | undefined) => {
    const index = settled.findIndex(({ ref }) => ref === change.ref);
    const [firing] = index < 0 ? [] : settled.splice(index, 1);
    const { event, delivery, pushedBy } = firing ?? { event: LOOK };
    onFiring(
      observeRef(db, project, trigger, change, { event, delivery, pushedBy, waiting: firing }, ignored),
    );
  };
  const observeAll = (ignored?: 'too_many') => (batch: readonly SeenChange[]) => {
    for (const change of batch) observe(change, ignored);
  };
  const apply = async (list: SeenChange[], rows: number, record: (batch: SeenChange[]) => void) => {
    for (let at = 0; at < list.length; at += rows) {
      await nextTurn();
      const isApplied = db.write(() => {
        if (!isCurrent()) return false;
        record(withoutStale(list.slice(at, at + rows)));
        return true;
      });
      if (!isApplied) return false;
    }
    return true;
  };

  // The requests are last, in the transaction that ends the look. If the process is killed before, the next look finds the
  // same changes to build.
  const isApplied =
    (await apply(plan.silent, PAGE_ROWS, batch => rememberRefs(db, project.id, batch))) &&
    (await apply(plan.ignored, BATCH_ROWS, observeAll())) &&
    (await apply(plan.tooMany, BATCH_ROWS, observeAll('too_many')));
  return db.write(() => {
    if (!isApplied || !isCurrent()) {
      scheduleLook(db, claim, db.now());
      return undefined;
    }
    observeAll()(withoutStale(plan.wanted));
    const hasChanges = !isFirst && changes.length > 0;
    const ended = settled.filter(({ ref }) => ref === null || !staleRefs.has(ref));
    for (const firing of ended)
      onFiring(resolveFiring(db, firing, resolutionOf(firing, answer, isFirst, hasChanges)));
    if (isFirst && !ended.some(({ ref }) => ref === null))
      onFiring(recordFiring(db, trigger, { event: LOOK, outcome: 'ignored', reason: 'first_look' }));
    const mustLookAgain = staleRefs.size > 0 || hasUnsettled;
    // The digest stands for the known refs. It does not, if a hook has changed them since the host was asked.
    const isRaced = listReplacedHashes(db, project.id, claim.startId).size > 0;
    recordLook(db, {
      projectId: project.id,
      repositoryUrl: project.repositoryUrl,
      refsDigest: mustLookAgain || isRaced ? '' : answer.digest,
      defaultBranch: answer.defaultBranch ?? null,
      lookedAt: db.now(),
    });
    endLook(db, trigger, claim, nextLookAt(db, trigger, mustLookAgain ? LOOK_AGAIN_S : undefined));
    return hasChanges ? 'changed' : 'unchanged';
  });
}

/** Compares in pages, so that requests are served in between. */
async function listChanges(
  db: Db,
  projectId: bigint,
  refs: ReadonlyMap<string, string>,
): Promise<SeenChange[]> {
  const changes: SeenChange[] = [];
  const known = new Set<string>();
  for (let page = listSeenRefs(db, projectId, '', PAGE_ROWS); page.length > 0; ) {
    for (const { ref, hash } of page) {
      const after = refs.get(ref) ?? null;
      if (after !== hash) changes.push({ ref, after });
      known.add(ref);
    }
    await nextTurn();
    page = listSeenRefs(db, projectId, page.at(-1)?.ref ?? '', PAGE_ROWS);
  }
  let compared = 0;
  for (const [ref, after] of refs) {
    if (!known.has(ref)) changes.push({ ref, after });
    compared += 1;
    if (compared % COMPARED_AT_ONCE === 0) await nextTurn();
  }
  return changes;
}

function planFor(
  db: Db,
  { trigger, project, answer: { defaultBranch } }: Look,
  changes: readonly SeenChange[],
  waiting: readonly Firing[],
  isFirst: boolean,
): LookPlan {
  const filters = [trigger, ...listRefTriggers(db, project.id)].map(({ options }) =>
    compileFilters(JSON.parse(options)),
  );
  const named = new Set(waiting.flatMap(({ ref }) => ref ?? []));
  const { build_first } = JSON.parse(trigger.options) as Partial<TriggerOptions['poll']>;
  const firstRefs = new Set([
    ...named,
    ...(build_first && defaultBranch !== undefined ? [defaultBranch] : []),
  ]);
  return planLook(changes, {
    firstRefs: isFirst ? firstRefs : undefined,
    defaultBranch,
    named,
    isWanted: ref => filters.some(wants => wants(ref)),
  });
}

/** Whether the answer has what the hook reported, or the hook is too old to wait for that. */
function isSettled({ ref, after, createdAt }: Firing, { refs }: RemoteRefs, now: number): boolean {
  if (ref === null || now - createdAt > HOST_LAG_MS) return true;
  const answered = refs.get(ref) ?? null;
  // A hook names the object of an annotated tag, the answer its commit.
  if (parseRef(ref)?.kind === 'tag') return (answered === null) === (after === null);
  return answered === after;
}

/** Ends a firing whose ref has not changed, or that names none. */
function resolutionOf(
  { ref }: Firing,
  { refs }: RemoteRefs,
  isFirst: boolean,
  hasChanges: boolean,
): Parameters<typeof resolveFiring>[2] {
  if (ref !== null)
    return refs.has(ref) ? { outcome: 'unchanged' } : { outcome: 'ignored', reason: 'deleted' };
  if (isFirst) return { outcome: 'ignored', reason: 'first_look' };
  return { outcome: hasChanges ? 'looked' : 'unchanged' };
}
