// Sends the outbox to its receivers: at least once, in order for one resource, and no receiver delays another one.
// The rows are the truth; a signal or the clock is only a hint to look at them.

import type { Cidr } from '../domain/webhook/address.ts';
import { classifyResponse, isSuccess } from '../domain/webhook/delivery.ts';
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
  getReceiver,
  listDueDeliveries,
  listWaitingReceivers,
  receiverExists,
  recordAttempt,
  repairSchedule,
} from '../store/outbox.ts';

import { version } from '../version.ts';

export type DeliveryOutcome = 'delivered' | 'retried' | 'failed';

type Receiver = {
  notificationId: bigint;
  url: string;
  host: string;
  secret: string | undefined;
  /** Set while the last answer was a failure: nothing is sent until then, on the monotonic clock. */
  resumeAtMs: number;
  underWay: Map<bigint, Due>;
  isGone: boolean;
  calledOff: AbortController;
};

type Answered = { receiver: Receiver; delivery: Due; answer: DeliveryResponse };

const MOST_UNDER_WAY = 512;
/** Less than one host gets, so that a receiver that hangs leaves connections for others on its host. */
export const MOST_PER_RECEIVER = 12;
/** A receiver that failed last is tried once in this time, so that a dead one with a long backlog costs nothing. */
const FAILURE_PAUSE_MS = 1_000;
/** Rows looked at beyond those that can be sent, to see past a few that are held back. */
const lookAhead = 32;
// A clock that is set is noticed within this time.
const longestSleepMs = 60_000;
const troubleMs = 1_000;
const graceMs = 1_000;
const clockToleranceMs = 1_000;
const goneReason = 'given up: the receiver answered 410, which switched the notification off';

export function startDeliveries(options: {
  db: Db;
  live: Live;
  log: Log;
  /** Keep one list for the life of the process: connections are kept under it. */
  allow: readonly Cidr[];
  proxy?: ProxyEnvironment | undefined;
  onOutcome?: (outcome: DeliveryOutcome) => void;
}): { stop(): Promise<void> } {
  const { db, live, log } = options;
  const receivers = new Map<bigint, Receiver>();
  const running = new Set<Promise<void>>();
  let answered: Answered[] = [];
  let immediate: NodeJS.Immediate | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isPoked = false;
  let isStopping = false;
  let clockOffsetMs = db.now() - performance.now();

  function wake(): void {
    if (!isStopping) immediate ??= setImmediate(turn);
  }

  function turn(): void {
    immediate = undefined;
    clearTimeout(timer);
    try {
      settleAnswered();
      watchClock();
      if (isPoked) callOffDeleted();
      const sleepMs = sendDue();
      if (sleepMs !== undefined) timer = setTimeout(wake, sleepMs);
    } catch (cause) {
      // What was answered is kept until it can be written: sending it again would be the worse way out.
      log.error('webhook deliveries could not be recorded', { cause });
      timer = setTimeout(wake, troubleMs);
    }
  }

  function settleAnswered(): void {
    const batch = answered;
    if (batch.length === 0) return;
    const recorded = db.write(() =>
      batch.map(({ receiver, delivery, answer }) => {
        const settlement = classifyResponse(answer, delivery.attempts, db.now());
        const isRecorded = recordAttempt(db, delivery.id, settlement);
        if (isRecorded && answer.status === 410) disableNotification(db, receiver.notificationId);
        return isRecorded ? settlement : undefined;
      }),
    );
    answered = answered.slice(batch.length);
    batch.forEach(({ receiver, delivery, answer }, index) => {
      const settlement = recorded[index];
      receiver.underWay.delete(delivery.id);
      receiver.resumeAtMs = isSuccess(answer.status) ? 0 : performance.now() + FAILURE_PAUSE_MS;
      if (!settlement) return;
      options.onOutcome?.(settlement.state === 'pending' ? 'retried' : settlement.state);
      if (answer.status === 410) {
        receiver.isGone = true;
        log.info('webhook receiver is gone, its notification is switched off', {
          notification: receiver.notificationId,
        });
      }
    });
  }

  function watchClock(): void {
    const offsetMs = db.now() - performance.now();
    if (offsetMs < clockOffsetMs - clockToleranceMs) repairSchedule(db);
    clockOffsetMs = offsetMs;
  }

  function callOffDeleted(): void {
    isPoked = false;
    for (const receiver of receivers.values())
      if (receiver.underWay.size > 0 && !receiverExists(db, receiver.notificationId))
        receiver.calledOff.abort();
  }

  /** Sends what may be sent now; answers how long it can sleep after that, if anything waits. */
  function sendDue(): number | undefined {
    const waiting = listWaitingReceivers(db);
    const now = db.now();
    let sleepMs = waiting.length > 0 ? longestSleepMs : undefined;
    const wakeIn = (ms: number) => {
      sleepMs = Math.min(sleepMs ?? longestSleepMs, Math.max(0, ms));
    };
    const due: Receiver[] = [];
    const isWaiting = new Set<bigint>();
    for (const { notificationId, dueAt } of waiting) {
      isWaiting.add(notificationId);
      if (dueAt > now) wakeIn(dueAt - now);
      else due.push(receiverOf(notificationId));
    }
    for (const receiver of receivers.values())
      if (receiver.underWay.size === 0 && !isWaiting.has(receiver.notificationId))
        receivers.delete(receiver.notificationId);

    let inAll = 0;
    const perHost = new Map<string, number>();
    const count = (host: string, deliveries: number) => {
      inAll += deliveries;
      perHost.set(host, (perHost.get(host) ?? 0) + deliveries);
    };
    for (const { host, underWay } of receivers.values()) count(host, underWay.size);
    // The receiver with the least under way comes first: a long backlog does not delay the others.
    due.sort((a, b) => a.underWay.size - b.underWay.size);
    for (const receiver of due) {
      if (receiver.isGone) {
        if (receiver.underWay.size > 0) continue;
        receiver.isGone = !failSomeDeliveries(db, receiver.notificationId, goneReason);
        wakeIn(0);
        continue;
      }
      const pauseMs = receiver.resumeAtMs - performance.now();
      const free = Math.min(
        (receiver.resumeAtMs === 0 ? MOST_PER_RECEIVER : 1) - receiver.underWay.size,
        connectionsPerHost - (perHost.get(receiver.host) ?? 0),
        MOST_UNDER_WAY - inAll,
      );
      if (free > 0 && pauseMs > 0) wakeIn(pauseMs);
      if (free <= 0 || pauseMs > 0) continue;
      const { sendable, heldBack } = choose(receiver, free);
      if (heldBack) wakeIn(0);
      count(receiver.host, sendable.length);
      for (const delivery of sendable) send(receiver, delivery);
      const nextDueAt = sendable.length < free ? findNextDueAt(db, receiver.notificationId) : undefined;
      if (nextDueAt !== undefined) wakeIn(nextDueAt - now);
    }
    return sleepMs;
  }

  function choose(receiver: Receiver, free: number): { sendable: Due[]; heldBack: boolean } {
    const { underWay } = receiver;
    const limit = underWay.size + free + lookAhead;
    const due = listDueDeliveries(db, receiver.notificationId, limit);
    const busy = new Set([...underWay.values()].map(delivery => delivery.resourceId));
    const sendable = due
      .filter(delivery => delivery.headId === delivery.id && !busy.has(delivery.resourceId))
      .slice(0, free);
    const isCrowdedOut = sendable.length < free && due.length === limit;
    const behind = isCrowdedOut
      ? due.filter(delivery => delivery.headId !== delivery.id && !underWay.has(delivery.id))
      : [];
    if (behind.length > 0)
      blockDeliveries(
        db,
        behind.map(delivery => delivery.id),
      );
    return { sendable, heldBack: behind.length > 0 };
  }

  function receiverOf(notificationId: bigint): Receiver {
    const known = receivers.get(notificationId);
    if (known) return known;
    const found = openReceiver(db, log, notificationId);
    const receiver: Receiver = {
      notificationId,
      ...found,
      host: URL.parse(found.url)?.host ?? found.url,
      resumeAtMs: 0,
      underWay: new Map(),
      isGone: false,
      calledOff: new AbortController(),
    };
    receivers.set(notificationId, receiver);
    return receiver;
  }

  function send(receiver: Receiver, delivery: Due): void {
    receiver.underWay.set(delivery.id, delivery);
    const attempt = post(receiver, delivery).then(answer => {
      running.delete(attempt);
      // Called off by the end of the process or of the notification: the row says what is to be done with it.
      if (receiver.calledOff.signal.aborted && answer.status === undefined)
        receiver.underWay.delete(delivery.id);
      else answered.push({ receiver, delivery, answer });
      wake();
    });
    running.add(attempt);
  }

  async function post(receiver: Receiver, delivery: Due): Promise<DeliveryResponse> {
    if (receiver.secret === undefined)
      return { responseMs: 0, excerpt: '', error: 'its signing secret cannot be read with this master key' };
    const message = findMessage(db, delivery.id);
    if (!message) return { responseMs: 0, excerpt: '', error: 'its event is no longer kept' };
    const id = String(message.eventId);
    const body = Buffer.from(message.body);
    const timestamp = Math.floor(db.now() / 1000);
    try {
      return await deliver({
        url: receiver.url,
        body,
        headers: {
          'content-type': 'application/json',
          'user-agent': `Assay/${version}`,
          'webhook-id': id,
          'webhook-timestamp': String(timestamp),
          'webhook-signature': sign({ id, timestamp, body, secret: receiver.secret }),
        },
        allow: options.allow,
        signal: receiver.calledOff.signal,
        ...(options.proxy && { proxy: options.proxy }),
      });
    } catch (cause) {
      log.error('webhook could not be sent', { delivery: delivery.id, cause });
      return { responseMs: 0, excerpt: '', error: 'it could not be sent; the log of the service says why' };
    }
  }

  repairSchedule(db);
  const unwatch = live.watch('deliveries', () => {
    isPoked = true;
    wake();
  });
  wake();

  return {
    async stop() {
      isStopping = true;
      unwatch();
      clearImmediate(immediate);
      clearTimeout(timer);
      const { promise: graceOver, resolve } = Promise.withResolvers<void>();
      const grace = setTimeout(resolve, graceMs);
      await Promise.race([Promise.all(running), graceOver]);
      clearTimeout(grace);
      for (const receiver of receivers.values()) receiver.calledOff.abort();
      await Promise.all(running);
      settleAnswered();
    },
  };
}

function openReceiver(db: Db, log: Log, notificationId: bigint): { url: string; secret: string | undefined } {
  try {
    return getReceiver(db, notificationId);
  } catch (cause) {
    log.error('signing secret of a notification cannot be read', { notification: notificationId, cause });
    return { url: '', secret: undefined };
  }
}
