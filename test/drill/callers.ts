// Many callers of the API at once, each with a connection of its own, and how long their answers took.
import { Agent, request } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import type { Room } from './room.ts';
import type { Chance } from './seed.ts';

export type Heard = { times: number[]; statuses: Map<number, number>; failures: string[] };

const ANSWER_MS = 60_000;
const OPENED_AT_ONCE = 50;

export const percentile = (times: readonly number[], share: number) =>
  times.toSorted((one, other) => one - other)[Math.min(times.length - 1, Math.floor(times.length * share))] ??
  0;

export type Call = { method: string; path: string; form?: Record<string, string> };

/** `count` callers who each make `each` calls, waiting up to `restMs` before each. */
export async function callAll(
  room: Room,
  options: { count: number; each: number; restMs: number; chance: Chance; next: () => Call },
): Promise<Heard> {
  const heard: Heard = { times: [], statuses: new Map(), failures: [] };
  const { origin, ca } = room.client();
  const { hostname, port } = new URL(origin);
  const one = async () => {
    const agent = new Agent({ keepAlive: true, ca, maxSockets: 1 });
    try {
      for (let call = 0; call < options.each; call++) {
        await delay(options.chance.between(0, options.restMs));
        const { method, path, form } = options.next();
        const startedAt = performance.now();
        try {
          const status = await ask(agent, { hostname, port, method, path, as: room.as, form });
          heard.statuses.set(status, (heard.statuses.get(status) ?? 0) + 1);
          // The first one pays for the connection.
          if (call > 0) heard.times.push(performance.now() - startedAt);
        } catch (error) {
          heard.failures.push(`${method} ${path}: ${(error as Error).message}`);
        }
      }
    } finally {
      agent.destroy();
    }
  };
  await Promise.all(Array.from({ length: options.count }, one));
  return heard;
}

/** As many connections as callers, opened before; then each asks once, all in the same moment. How long each waited for its
 *  answer, counted from that moment. */
export async function callTogether(
  room: Room,
  options: { count: number; next: () => Call },
): Promise<Heard & { elapsedMs: number }> {
  const heard: Heard = { times: [], statuses: new Map(), failures: [] };
  const { origin, ca } = room.client();
  const { hostname, port } = new URL(origin);
  const agents = Array.from(
    { length: options.count },
    () => new Agent({ keepAlive: true, ca, maxSockets: 1 }),
  );
  const ping = { hostname, port, method: 'GET', path: '/ping', as: room.as, form: undefined };
  try {
    for (let at = 0; at < agents.length; at += OPENED_AT_ONCE)
      await Promise.all(agents.slice(at, at + OPENED_AT_ONCE).map(agent => ask(agent, ping)));
    const calls = agents.map(agent => ({ agent, ...options.next() }));
    const startedAt = performance.now();
    await Promise.all(
      calls.map(async ({ agent, method, path, form }) => {
        try {
          const status = await ask(agent, { hostname, port, method, path, as: room.as, form });
          heard.times.push(performance.now() - startedAt);
          heard.statuses.set(status, (heard.statuses.get(status) ?? 0) + 1);
        } catch (error) {
          heard.failures.push(`${method} ${path}: ${(error as Error).message}`);
        }
      }),
    );
    return { ...heard, elapsedMs: performance.now() - startedAt };
  } finally {
    for (const agent of agents) agent.destroy();
  }
}

type Asked = {
  hostname: string;
  port: string;
  method: string;
  path: string;
  as: string;
  form: Record<string, string> | undefined;
};

function ask(agent: Agent, { hostname, port, method, path, as, form }: Asked): Promise<number> {
  return new Promise((resolve, reject) => {
    const type = form && { 'content-type': 'application/x-www-form-urlencoded' };
    const headers = { authorization: as, ...type };
    const outgoing = request({ agent, hostname, port, method, path, headers }, incoming => {
      incoming.resume();
      incoming.on('end', () => resolve(incoming.statusCode ?? 0));
      incoming.on('error', reject);
    });
    outgoing.setTimeout(ANSWER_MS, () => outgoing.destroy(new Error('no answer')));
    outgoing.on('error', reject);
    outgoing.end(form && new URLSearchParams(form).toString());
  });
}
