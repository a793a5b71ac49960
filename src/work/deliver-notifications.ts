// Sends webhooks and commit statuses from the outbox: at least once, in order for each resource or context, and without one
// receiver delaying another. The rows are the truth; signals and timers are hints.

import { classifyForgeResponse, forgeRequests } from '../domain/commit-status.ts';
import { maskText } from '../domain/text/mask.ts';
import type { Cidr } from '../domain/webhook/address.ts';
import { attemptResult, classifyResponse } from '../domain/webhook/delivery.ts';
import { sign } from '../domain/webhook/signature.ts';
import {
  connectionsPerHost,
  type DeliveryResponse,
  deliver,
  type ProxyEnvironment,
} from '../engine/webhook.ts';
import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import type { Db } from '../store/database/db.ts';
import {
  blockDeliveries,
  type Due,
  disableNotification,
  failSomeDeliveries,
  findMessage,
  findNextDueAt,
  getTarget,
  listDueDeliveries,
  listWaitingReceivers,
  receiverExists,
  recordAttempt,
  repairSchedule,
  type Target,
} from '../store/outbox.ts';
import { findStatus } from '../store/statuses.ts';

import { version } from '../version.ts';

export type DeliveryOutcome = 'delivered' | 'retried' | 'failed';

type Receiver = {
  notificationId: bigint;
  /** Undefined if its secret cannot be read. */
  target: Target | undefined;
  host: string;
  /** After a failure, nothing is sent before this time of the monotonic clock, and then one delivery. Otherwise 0. */
  resumeAtMs: number;
  inFlight: Map<bigint, Due>;
  /** Why nothing more is sent: its deliveries fail with this reason. */
  goneBecause: string | undefined;
  canceled: AbortController;
};

type Responded = { receiver: Receiver; delivery: Due; response: DeliveryResponse };

const MAX_IN_FLIGHT = 512;
/** Fewer than the connections to one host, so that a receiver that hangs leaves connections for others on its host. */
export const MAX_PER_RECEIVER = 12;
/** After a failure, a receiver is tried once in this time, so that a dead one with a long backlog costs little. */
const FAILURE_PAUSE_MS = 1_000;
/** Extra rows to read, because some may be blocked by an earlier delivery of the same resource. */
const LOOK_AHEAD = 32;
/** A change of the system clock is noticed within this time. */
const MAX_SLEEP_MS = 60_000;
const RETRY_MS = 1_000;
const GRACE_MS = 1_000;
const CLOCK_TOLERANCE_MS = 1_000;

export function startDeliveries(options: {
  db: Db;
  live: Live;
  log: Log;
  /** Must stay the same array: connections are pooled by it. */
  allow: readonly Cidr[];
  proxy?: ProxyEnvironment | undefined;
  /** Commit statuses link to pages below it. */
  baseUrl: string;
  onOutcome?: (outcome: DeliveryOutcome) => void;
}): { stop(): Promise<void> } {
  const { db, live, log } = options;
  const receivers = new Map<bigint, Receiver>();
  const running = new Set<Promise<void>>();
  let responded: Responded[] = [];
  let immediate: NodeJS.Immediate | undefined;
  let timer: NodeJS.Timeout | undefined;
  let hasChanged = false;
  let isStopping = false;
  let clockOffsetMs = db.now() - performance.now();

  function wake(): void {
    if (!isStopping) immediate ??= setImmediate(runOnce);
  }

  function runOnce(): void {
    immediate = undefined;
    clearTimeout(timer);
    try {
      recordResponses();
      checkClock();
      if (hasChanged) abortDeleted();
      const sleepMs = sendDue();
      if (sleepMs !== undefined) timer = setTimeout(wake, sleepMs);
    } catch (error) {
      // Responses stay in memory until they can be recorded, so that nothing is sent twice.
      log.error('webhook deliveries could not be recorded', { cause: error });
      timer = setTimeout(wake, RETRY_MS);
    }
  }

  function recordResponses(): void {
    const batch = responded;
    if (batch.length === 0) return;
    const recorded = db.write(() =>
      batch.map(({ receiver, delivery, response }) => {
        const { attempts } = delivery;
        const classification = receiver.target?.statusOptions
          ? classifyForgeResponse(response, attempts)
          : classifyResponse(response);
        const result = attemptResult(response, classification, attempts, db.now());
        const isRecorded = recordAttempt(db, delivery.id, result);
        const { disableBecause } = classification;
        if (isRecorded && disableBecause) disableNotification(db, receiver.notificationId, disableBecause);
        return { ...classification, state: isRecorded ? result.state : undefined };
      }),
    );
    responded = responded.slice(batch.length);
    batch.forEach(({ receiver, delivery }, index) => {
      const { outcome, state, disableBecause, retryAfterMs = 0 } = recorded[index]!;
      receiver.inFlight.delete(delivery.id);
      receiver.resumeAtMs =
        outcome === 'delivered' ? 0 : performance.now() + Math.max(FAILURE_PAUSE_MS, retryAfterMs);
      if (!state) return;
      options.onOutcome?.(state === 'pending' ? 'retried' : state);
      if (disableBecause) {
        receiver.goneBecause = disableBecause;
        log.info('notification switched off', {
          notification: receiver.notificationId,
          because: disableBecause,
        });
      }
    });
  }

  function checkClock(): void {
    const offsetMs = db.now() - performance.now();
    if (offsetMs < clockOffsetMs - CLOCK_TOLERANCE_MS) repairSchedule(db);
    clockOffsetMs = offsetMs;
  }

  function abortDeleted(): void {
    hasChanged = false;
    for (const receiver of receivers.values())
      if (receiver.inFlight.size > 0 && !receiverExists(db, receiver.notificationId))
        receiver.canceled.abort();
  }

  /** Sends what can be sent now. Returns how long to sleep, or undefined if nothing is waiting. */
  function sendDue(): number | undefined {
    const waiting = listWaitingReceivers(db);
    const now = db.now();
    let sleepMs = waiting.length > 0 ? MAX_SLEEP_MS : undefined;
    const wakeIn = (ms: number) => {
      sleepMs = Math.min(sleepMs ?? MAX_SLEEP_MS, Math.max(0, ms));
    };
    const due: Receiver[] = [];
    const isWaiting = new Set<bigint>();
    for (const { notificationId, dueAt } of waiting) {
      isWaiting.add(notificationId);
      if (dueAt > now) wakeIn(dueAt - now);
      else due.push(receiverOf(notificationId));
    }
    for (const receiver of receivers.values())
      if (receiver.inFlight.size === 0 && !isWaiting.has(receiver.notificationId))
        receivers.delete(receiver.notificationId);

    let inAll = 0;
    const perHost = new Map<string, number>();
    const count = (host: string, deliveries: number) => {
      inAll += deliveries;
      perHost.set(host, (perHost.get(host) ?? 0) + deliveries);
    };
    for (const { host, inFlight } of receivers.values()) count(host, inFlight.size);
    // Receivers with the fewest deliveries in flight come first, so that a long backlog does not delay others.
    due.sort((a, b) => a.inFlight.size - b.inFlight.size);
    for (const receiver of due) {
      if (receiver.goneBecause !== undefined) {
        if (receiver.inFlight.size > 0) continue;
        const reason = `not sent: ${receiver.goneBecause}, so the notification was switched off`;
        const isEmpty = failSomeDeliveries(db, receiver.notificationId, reason);
        // A webhook can still be sent again by hand.
        if (isEmpty && !receiver.target?.statusOptions) receiver.goneBecause = undefined;
        wakeIn(0);
        continue;
      }
      const pauseMs = receiver.resumeAtMs - performance.now();
      const free = Math.min(
        (receiver.resumeAtMs === 0 ? MAX_PER_RECEIVER : 1) - receiver.inFlight.size,
        connectionsPerHost - (perHost.get(receiver.host) ?? 0),
        MAX_IN_FLIGHT - inAll,
      );
      if (free > 0 && pauseMs > 0) wakeIn(pauseMs);
      if (free <= 0 || pauseMs > 0) continue;
      const { sendable, hasBlocked } = choose(receiver, free);
      if (hasBlocked) wakeIn(0);
      count(receiver.host, sendable.length);
      for (const delivery of sendable) send(receiver, delivery);
      const nextDueAt = sendable.length < free ? findNextDueAt(db, receiver.notificationId) : undefined;
      if (nextDueAt !== undefined) wakeIn(nextDueAt - now);
    }
    return sleepMs;
  }

  function choose(receiver: Receiver, free: number): { sendable: Due[]; hasBlocked: boolean } {
    const { inFlight } = receiver;
    const limit = inFlight.size + free + LOOK_AHEAD;
    const due = listDueDeliveries(db, receiver.notificationId, limit);
    const busy = new Set([...inFlight.values()].map(delivery => delivery.resourceId));
    const sendable = due
      .filter(delivery => delivery.headId === delivery.id && !busy.has(delivery.resourceId))
      .slice(0, free);
    const isFullOfBlocked = sendable.length < free && due.length === limit;
    const blocked = isFullOfBlocked
      ? due.filter(delivery => delivery.headId !== delivery.id && !inFlight.has(delivery.id))
      : [];
    if (blocked.length > 0)
      blockDeliveries(
        db,
        blocked.map(delivery => delivery.id),
      );
    return { sendable, hasBlocked: blocked.length > 0 };
  }

  function receiverOf(notificationId: bigint): Receiver {
    const known = receivers.get(notificationId);
    if (known) return known;
    const opened = openTarget(db, log, notificationId);
    const receiver: Receiver = {
      notificationId,
      ...opened,
      // One status is sent first: a forge counts failed logins.
      resumeAtMs: opened.target?.statusOptions ? performance.now() : 0,
      inFlight: new Map(),
      canceled: new AbortController(),
    };
    receivers.set(notificationId, receiver);
    return receiver;
  }

  function send(receiver: Receiver, delivery: Due): void {
    receiver.inFlight.set(delivery.id, delivery);
    const attempt = post(receiver, delivery).then(response => {
      running.delete(attempt);
      // Aborted because the server stops or the notification was deleted: there is nothing to record.
      if (receiver.canceled.signal.aborted && response.status === undefined)
        receiver.inFlight.delete(delivery.id);
      else responded.push({ receiver, delivery, response });
      wake();
    });
    running.add(attempt);
  }

  async function post(receiver: Receiver, delivery: Due): Promise<DeliveryResponse> {
    const { target } = receiver;
    if (!target) return noResponse('its secret cannot be read with this master key');
    const requests = target.statusOptions
      ? statusRequests(target, delivery)
      : webhookRequest(target, delivery);
    if (requests.length === 0) return noResponse('its event was deleted');
    try {
      let response = noResponse('');
      for (const { headers, ...request } of requests) {
        response = await deliver({
          ...request,
          headers: { 'content-type': 'application/json', 'user-agent': `Assay/${version}`, ...headers },
          allow: options.allow,
          signal: receiver.canceled.signal,
          ...(options.proxy && { proxy: options.proxy }),
        });
        if (response.status !== 400) break;
      }
      return { ...response, excerpt: withoutSecret(response.excerpt, target.secret) };
    } catch (error) {
      log.error('webhook could not be sent', { delivery: delivery.id, cause: error });
      return noResponse('it could not be sent; see the log of the service');
    }
  }

  type Request = { url: string; headers: Record<string, string>; body: string | Buffer };

  function webhookRequest({ url, secret }: Target, delivery: Due): Request[] {
    const message = findMessage(db, delivery.id);
    if (!message) return [];
    const id = String(message.eventId);
    const body = Buffer.from(message.body);
    const timestamp = Math.floor(db.now() / 1000);
    const headers = {
      'webhook-id': id,
      'webhook-timestamp': String(timestamp),
      'webhook-signature': sign({ id, timestamp, body, secret }),
    };
    return [{ url, headers, body }];
  }

  function statusRequests({ url, secret, statusOptions }: Target, delivery: Due): Request[] {
    const status = findStatus(db, delivery.id, options.baseUrl);
    return status && statusOptions ? forgeRequests(statusOptions, { url, token: secret }, status) : [];
  }

  /** After a change of URL, token or options, the next delivery uses them. */
  function reopenTargets(): void {
    for (const receiver of receivers.values())
      Object.assign(receiver, openTarget(db, log, receiver.notificationId), {
        resumeAtMs: performance.now(),
      });
    wake();
  }

  repairSchedule(db);
  const unwatch = live.watch('deliveries', () => {
    hasChanged = true;
    wake();
  });
  const unwatchTargets = live.watch('notifications', reopenTargets);
  wake();

  return {
    async stop() {
      isStopping = true;
      unwatch();
      unwatchTargets();
      clearImmediate(immediate);
      clearTimeout(timer);
      const { promise: graceOver, resolve } = Promise.withResolvers<void>();
      const grace = setTimeout(resolve, GRACE_MS);
      await Promise.race([Promise.all(running), graceOver]);
      clearTimeout(grace);
      for (const receiver of receivers.values()) receiver.canceled.abort();
      await Promise.all(running);
      recordResponses();
    },
  };
}

function openTarget(
  db: Db,
  log: Log,
  notificationId: bigint,
): Pick<Receiver, 'target' | 'host' | 'goneBecause'> {
  try {
    const target = getTarget(db, notificationId);
    return {
      target,
      host: URL.parse(target.url)?.host ?? target.url,
      // The forge counts failed logins, so nothing is sent until somebody enables it.
      goneBecause: target.statusOptions && !target.enabled ? 'the forge refused it' : undefined,
    };
  } catch (error) {
    log.error('secret of a notification cannot be read', { notification: notificationId, cause: error });
    return { target: undefined, host: '', goneBecause: undefined };
  }
}

const noResponse = (error: string): DeliveryResponse => ({ responseMs: 0, excerpt: '', error });

/** A receiver may repeat what it was sent, and the excerpt may end inside it. */
function withoutSecret(excerpt: string, secret: string): string {
  const masked = maskText([secret], excerpt);
  for (let length = secret.length - 1; length >= 8; length--)
    if (masked.endsWith(secret.slice(0, length))) return `${masked.slice(0, -length)}***`;
  return masked;
}
