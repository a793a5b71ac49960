// A database with projects and triggers, repositories that are only lists of refs, and the real watch of repositories.
import { createHash } from 'node:crypto';
import { after } from 'node:test';
import { eq } from 'drizzle-orm';
import type { RefChange } from '../../src/domain/trigger/hook-payload.ts';
import { defaultOptions, type TriggerOptions } from '../../src/domain/trigger/trigger.ts';
import type { RemoteRefs } from '../../src/engine/git/ls-remote.ts';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { listBuildRequests } from '../../src/store/builds.ts';
import type { Db } from '../../src/store/database/db.ts';
import { firings } from '../../src/store/database/schema.ts';
import { createProject, type Project } from '../../src/store/projects.ts';
import { observeHook } from '../../src/store/trigger/firings.ts';
import {
  createTrigger,
  findAnyTrigger,
  listFirings,
  type Trigger,
} from '../../src/store/trigger/triggers.ts';
import {
  type LookOutcome,
  type WatchOptions,
  watchRepositories,
} from '../../src/work/trigger/watch-repositories.ts';
import { addAccount, addProject, openFixture } from '../store/fixture.ts';

export type FakeRepository = { refs: Map<string, string>; defaultBranch: string | undefined };

/** A hash for any text. */
export const hashOf = (text: string) => createHash('sha1').update(text).digest('hex');

export function answerOf({ refs, defaultBranch }: FakeRepository): RemoteRefs {
  const sorted = new Map([...refs].sort());
  return { defaultBranch, refs: sorted, digest: hashOf(JSON.stringify([defaultBranch, ...sorted])) };
}

export function addTrigger<Type extends 'push' | 'poll'>(
  db: Db,
  project: Project,
  triggerType: Type,
  options: Partial<TriggerOptions[Type]> = {},
): Trigger {
  return createTrigger(db, {
    projectId: project.id,
    name: `${triggerType} of ${project.name}`,
    triggerType,
    options: { ...defaultOptions[triggerType], ...options },
    nextAt: triggerType === 'poll' ? db.now() : null,
    createdBy: 'owner@example.com',
  });
}

export function openWatchFixture(
  options: Partial<Pick<WatchOptions, 'rate' | 'dataDirectory'>> & {
    ask?: WatchOptions['ask'];
    /** A project with a real repository, which is asked over SSH. */
    project?: { repositoryUrl: string; keyPair: { publicKey: string; privateKey: string } };
  } = {},
) {
  const fixture = openFixture({ ms: Date.now() });
  const { db, now } = fixture;
  const live = createLive();
  db.onCommit = topics => live.publish(topics);
  const project = options.project
    ? createProject(db, {
        ownerId: addAccount(db).id,
        name: 'real',
        description: '',
        badge: false,
        cancelSuperseded: false,
        ...options.project,
      })
    : addProject(db);
  const repository: FakeRepository = {
    refs: new Map([['refs/heads/main', hashOf('one')]]),
    defaultBranch: 'refs/heads/main',
  };
  const outcomes: LookOutcome[] = [];
  const lines: string[] = [];
  const noticed = new Set<() => void>();
  const start = (changed: typeof options = {}) => {
    const { ask = async () => answerOf(repository), ...others } = { ...options, ...changed };
    return watchRepositories({
      db,
      live,
      log: createLog(line => lines.push(line), {}),
      dataDirectory: '/nowhere',
      rate: 1000,
      onLook(outcome) {
        outcomes.push(outcome);
        for (const check of [...noticed]) check();
      },
      onFiring() {},
      ...others,
      ...(!options.project && { ask }),
    });
  };
  let watch: ReturnType<typeof start> | undefined;
  after(async () => {
    await watch?.stop();
    fixture[Symbol.dispose]();
  });
  /** Resolves when so many looks have ended in all. */
  const looks = (count: number) =>
    new Promise<void>(resolve => {
      const check = () => {
        if (outcomes.length < count) return;
        noticed.delete(check);
        resolve();
      };
      noticed.add(check);
      check();
    });
  return {
    db,
    now,
    live,
    project,
    repository,
    outcomes,
    lines,
    looks,
    start: (changed?: typeof options) => {
      watch = start(changed);
      return watch;
    },
    stop: () => watch?.stop(),
    /** Moves the clock to when the trigger is due, and waits for its look. */
    async lookAgain(trigger: Trigger): Promise<void> {
      const nextAt = findAnyTrigger(db, trigger.id)?.nextAt;
      if (nextAt == null) throw new Error('no look is planned');
      now.ms = Math.max(now.ms, nextAt);
      live.publish(['triggers']);
      await looks(outcomes.length + 1);
    },
    push: (ref: string, text: string) => repository.refs.set(ref, hashOf(text)),
    hook: (trigger: Trigger, ref: string, before: string | null, after: string | null) => {
      const hash = (text: string | null) => (text === null ? null : hashOf(text));
      const change: RefChange = { ref, before: hash(before), after: hash(after) };
      return observeHook(db, project, trigger, change, { event: 'push', delivery: 'd', pushedBy: 'ada' });
    },
    requests: (of: Project = project) =>
      listBuildRequests(db, of.id, { limit: 1000, before: undefined })
        .map(({ commitRef, pinned }) => [commitRef, pinned])
        .reverse(),
    firings: (trigger: Trigger) =>
      listFirings(db, trigger.id, { limit: 1000, before: undefined })
        .map(({ event, ref, outcome, reason }) => [event, ref, outcome, reason])
        .reverse(),
    firing: (id: bigint) =>
      db.orm.select().from(firings).where(eq(firings.id, id)).get() as typeof firings.$inferSelect,
    trigger: (trigger: Trigger) => findAnyTrigger(db, trigger.id) as Trigger,
  };
}
