// Many concurrent API clients, each with its own connection, and the times of their responses.
import { Agent, request } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import type { DrillEnvironment } from '../support/environment.ts';
import type { Random } from '../support/random.ts';

export type Responses = { times: number[]; statuses: Map<number, number>; failures: string[] };

const ANSWER_MS = 60_000;
const OPENED_AT_ONCE = 50;

export const percentile = (times: readonly number[], share: number) =>
  times.toSorted((one, other) => one - other)[Math.min(times.length - 1, Math.floor(times.length * share))] ??
  0;

export type Call = { method: string; path: string; form?: Record<string, string> };

/** `count` clients that each make `each` calls, and wait up to `restMs` before each call. */
export async function callAll(
  environment: DrillEnvironment,
  options: { count: number; each: number; restMs: number; random: Random; next: () => Call },
): Promise<Responses> {
  const responses: Responses = { times: [], statuses: new Map(), failures: [] };
  const { origin, ca } = environment.client();
  const { hostname, port } = new URL(origin);
  const one = async () => {
    const agent = new Agent({ keepAlive: true, ca, maxSockets: 1 });
    try {
      for (let call = 0; call < options.each; call++) {
        await delay(options.random.between(0, options.restMs));
        const { method, path, form } = options.next();
        const startedAt = performance.now();
        try {
          const status = await ask(agent, { hostname, port, method, path, as: environment.as, form });
          responses.statuses.set(status, (responses.statuses.get(status) ?? 0) + 1);
          // The first call includes opening the connection.
          if (call > 0) responses.times.push(performance.now() - startedAt);
        } catch (error) {
          responses.failures.push(`${method} ${path}: ${(error as Error).message}`);
        }
      }
    } finally {
      agent.destroy();
    }
  };
  await Promise.all(Array.from({ length: options.count }, one));
  return responses;
}

/**
 * Opens one connection for each client, then sends one request on all of them at the same moment. Returns the time of
 * each response from that moment on.
 */
export async function callTogether(
  environment: DrillEnvironment,
  options: { count: number; next: () => Call },
): Promise<Responses & { elapsedMs: number }> {
  const heard: Responses = { times: [], statuses: new Map(), failures: [] };
  const { origin, ca } = environment.client();
  const { hostname, port } = new URL(origin);
  const agents = Array.from(
    { length: options.count },
    () => new Agent({ keepAlive: true, ca, maxSockets: 1 }),
  );
  const ping = { hostname, port, method: 'GET', path: '/ping', as: environment.as, form: undefined };
  try {
    for (let at = 0; at < agents.length; at += OPENED_AT_ONCE)
      await Promise.all(agents.slice(at, at + OPENED_AT_ONCE).map(agent => ask(agent, ping)));
    const calls = agents.map(agent => ({ agent, ...options.next() }));
    const startedAt = performance.now();
    await Promise.all(
      calls.map(async ({ agent, method, path, form }) => {
        try {
          const status = await ask(agent, { hostname, port, method, path, as: environment.as, form });
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

type CallOptions = {
  hostname: string;
  port: string;
  method: string;
  path: string;
  as: string;
  form: Record<string, string> | undefined;
};

function ask(agent: Agent, { hostname, port, method, path, as, form }: CallOptions): Promise<number> {
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
