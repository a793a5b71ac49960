// Receives push hooks. The signature is the only credential. A hook writes rows and is answered: the network is never
// used meanwhile, because forges wait only a few seconds.

import type { IncomingMessage } from 'node:http';
import { firingShape, presentFiring } from '../contract/records/trigger.ts';
import { parseId } from '../domain/id.ts';
import { refusal } from '../domain/refusal.ts';
import {
  HOOK_READ_BYTES,
  type Hook,
  isSameRepository,
  type RefChange,
  readHook,
} from '../domain/trigger/hook-payload.ts';
import { createHookVerifier, type HookVerifier } from '../domain/trigger/hook-signature.ts';
import { type Db, prepared } from '../store/database/db.ts';
import { findProject, type Project } from '../store/projects.ts';
import { lookFor, observeHook, observePull, recordFiring } from '../store/trigger/firings.ts';
import {
  addRefusedHooks,
  type Firing,
  findAnyTrigger,
  isOwnerActive,
  secretsOf,
  type Trigger,
} from '../store/trigger/triggers.ts';
import { endpoint, type Services } from './endpoint.ts';
import { readChunks } from './http/body.ts';
import { markAuthenticated } from './http/connections.ts';
import { respondJson } from './http/respond.ts';

/** GitHub sends no larger ones. */
const MAX_HOOK_BYTES = 25 * 1024 * 1024;
const HOOK_TIMEOUT_MS = 60_000;
/** For the bodies of all hooks that are being received. One that does not fit is verified, but not read. */
const MAX_KEPT_BYTES = 64 * 1024 * 1024;

export const hooks = {
  receive: endpoint({
    method: 'POST',
    path: '/hooks/:trigger_id',
    summary:
      'Receives a push hook of GitHub, Gitea, Forgejo, Gogs, GitLab, Bitbucket or git itself, and returns a firing for each ref. Without a body, the repository is looked at',
    access: 'signature',
    scope: undefined,
    body: {
      description:
        'What the forge sends, as JSON or as a form; or the lines `<old> <new> <ref>` that git passes to a post-receive hook. At most 25 MiB.',
      optional: true,
      content: {
        'application/json': { type: 'object' },
        'application/x-www-form-urlencoded': { type: 'object', properties: { payload: { type: 'string' } } },
        'text/plain': { type: 'string' },
      },
      example: '-H "X-Assay-Token: $SECRET"',
    },
    response: { list: firingShape, paged: false, created: 'A build was requested.' },
    handle: async ({ db, log, metrics, params, request, outgoing }) => {
      const { trigger } = findHookTrigger(db, params.trigger_id);
      const verifier = createHookVerifier(request.headers, secretsOf(db, trigger), db.now());
      const body = verifier && (await readVerified(outgoing.req, verifier));
      if (body === undefined) {
        countRefused({ db, log }, trigger.id);
        throw refusal('unauthorized');
      }
      markAuthenticated(outgoing);
      const hook = readHook(request.headers, body);
      if (hook.content.type === 'malformed') throw refusal('invalid_format');
      const changes = hook.content.type === 'push' ? hook.content.changes.length : 1;
      const firings = await db.writeTogether(() => {
        // It may have been deleted or disabled while the body arrived.
        const { trigger: current, project } = findHookTrigger(db, params.trigger_id);
        return handleHook(db, project, current, hook);
      }, changes);
      for (const { outcome } of firings) metrics.countFiring(outcome);
      const hasRequest = firings.some(({ outcome }) => outcome === 'requested');
      return respondJson({ response: firings.map(presentFiring) }, hasRequest ? 201 : 200, undefined);
    },
  }),
};

function findHookTrigger(db: Db, param: string): { trigger: Trigger; project: Project } {
  const id = parseId(param);
  const trigger = id === undefined ? undefined : findAnyTrigger(db, id);
  const project = trigger && findProject(db, trigger.projectId);
  if (!trigger?.enabled || trigger.triggerType !== 'push' || !project) throw refusal('not_found');
  return { trigger, project };
}

/** Counted in memory and written together, so that a flood of refused hooks costs little more than a few. */
const REFUSALS_WRITTEN_EVERY_MS = 1_000;
const refusals = prepared(() => ({ counts: new Map<bigint, number>(), isScheduled: false }));

function countRefused({ db, log }: Pick<Services, 'db' | 'log'>, triggerId: bigint): void {
  const state = refusals(db);
  state.counts.set(triggerId, (state.counts.get(triggerId) ?? 0) + 1);
  if (state.isScheduled) return;
  state.isScheduled = true;
  setTimeout(() => {
    state.isScheduled = false;
    try {
      addRefusedHooks(db, state.counts);
      state.counts.clear();
    } catch (error) {
      // They are written with the next ones.
      log.warn('refused hooks could not be counted', { cause: error });
    }
  }, REFUSALS_WRITTEN_EVERY_MS).unref();
}

let keptBytes = 0;

/** The body; null if it is too large to be kept. Undefined if its signature is wrong. */
async function readVerified(
  incoming: IncomingMessage,
  verifier: HookVerifier,
): Promise<Uint8Array | null | undefined> {
  let kept: Uint8Array[] | null = [];
  let size = 0;
  const release = () => {
    keptBytes -= size;
    size = 0;
  };
  try {
    await readChunks(incoming, { maxBytes: MAX_HOOK_BYTES, timeoutMs: HOOK_TIMEOUT_MS }, chunk => {
      verifier.update(chunk);
      if (kept && size + chunk.length <= HOOK_READ_BYTES && keptBytes + chunk.length <= MAX_KEPT_BYTES) {
        kept.push(chunk);
        size += chunk.length;
        keptBytes += chunk.length;
      } else {
        kept = null;
        release();
      }
    });
    if (!verifier.verify()) return undefined;
    return kept && Buffer.concat(kept);
  } finally {
    release();
  }
}

function handleHook(db: Db, project: Project, trigger: Trigger, hook: Hook): Firing[] {
  const { content, event, delivery } = hook;
  const ignore = (reason: 'ping' | 'event' | 'owner_inactive', change?: RefChange) =>
    recordFiring(db, trigger, { event, delivery, ...change, outcome: 'ignored', reason });
  if (content.type === 'ping') return [ignore('ping')];
  if (content.type === 'ignored' || content.type === 'malformed') return [ignore('event')];
  const isActive = isOwnerActive(db, project);
  const look = () => [
    isActive ? lookFor(db, trigger, undefined, { event, delivery }) : ignore('owner_inactive'),
  ];
  if (content.type === 'unclear') return look();
  const { repository, pushedBy } = content;
  // A hook of another repository was installed by mistake, or the repository was renamed.
  if (repository !== null && !isSameRepository(project.repositoryUrl, repository)) return look();
  const origin = { event, delivery, pushedBy };
  if (content.type === 'pull_request')
    // The branch of a pull request within the repository was built when it was pushed.
    return [content.fromFork ? observePull(db, project, trigger, content, origin) : ignore('event')];
  return content.changes.map(change =>
    isActive ? observeHook(db, project, trigger, change, origin) : ignore('owner_inactive', change),
  );
}
