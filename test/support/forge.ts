// Stand-ins for GitHub, Gitea, GitLab and Bitbucket Data Center on loopback. They receive commit statuses, check them as
// those forges do, and keep what each context of a commit went through.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Forge } from '../../src/domain/commit-status.ts';

export const TOKEN = 'forge-token-0123456789abcdef';
const COMMIT = '([0-9a-f]{40})';

type Status = Record<string, unknown> & { state: string };
type Answer = { status: number; body?: unknown; headers?: Record<string, string> };

const kinds: Record<
  Forge,
  {
    base: string;
    path: RegExp;
    token: (headers: IncomingMessage['headers']) => string | undefined;
    states: string[];
    fields: string[];
    context: (body: Status) => unknown;
    isUnfinished: (state: string) => boolean;
  }
> = {
  github: {
    base: '/api/v3',
    path: new RegExp(`^/api/v3/repos/team/website/statuses/${COMMIT}$`),
    token: ({ authorization }) => /^Bearer (.+)$/.exec(authorization ?? '')?.[1],
    states: ['error', 'failure', 'pending', 'success'],
    fields: ['state', 'target_url', 'description', 'context'],
    context: ({ context }) => context,
    isUnfinished: state => state === 'pending',
  },
  gitea: {
    base: '/api/v1',
    path: new RegExp(`^/api/v1/repos/team/website/statuses/${COMMIT}$`),
    token: ({ authorization }) => /^token (.+)$/.exec(authorization ?? '')?.[1],
    states: ['error', 'failure', 'pending', 'success', 'warning'],
    fields: ['state', 'target_url', 'description', 'context'],
    context: ({ context }) => context,
    isUnfinished: state => state === 'pending',
  },
  gitlab: {
    base: '/api/v4',
    path: new RegExp(`^/api/v4/projects/team%2Fwebsite/statuses/${COMMIT}$`),
    token: headers => String(headers['private-token']),
    states: ['pending', 'running', 'success', 'failed', 'canceled'],
    fields: ['state', 'name', 'target_url', 'description', 'ref'],
    context: ({ name }) => name,
    isUnfinished: state => ['pending', 'running'].includes(state),
  },
  bitbucket: {
    base: '/rest/api/latest',
    path: new RegExp(`^/rest/api/latest/projects/team/repos/website/commits/${COMMIT}/builds$`),
    token: ({ authorization }) => /^Bearer (.+)$/.exec(authorization ?? '')?.[1],
    states: ['INPROGRESS', 'SUCCESSFUL', 'FAILED', 'CANCELLED', 'UNKNOWN'],
    fields: ['key', 'name', 'state', 'url', 'description', 'buildNumber', 'ref', 'duration'],
    context: ({ key }) => key,
    isUnfinished: state => state === 'INPROGRESS',
  },
};

export type StandInForge = {
  /** The base of its API. */
  url: string;
  port: number;
  /** The accepted states of each context of a commit, in order: `<hash> <context>`. */
  states: Map<string, string[]>;
  /** Every accepted body, in order. */
  accepted: Status[];
  /** The status of every answer, in order. */
  answers: number[];
  /** The state of every call, in order, before it is answered. */
  arrived: string[];
  /** Answers wait for it. */
  hold: Promise<void> | undefined;
  /** Answers instead of the forge, unless it returns undefined. */
  fault: ((body: Status, request: IncomingMessage) => Answer | undefined) | undefined;
  /** The contexts whose last state is not an end. */
  unfinished(): string[];
  close(): Promise<void>;
};

export async function startForge(
  kind: Forge,
  options: { port?: number; tls?: { key: string; cert: string }; onCall?: () => void } = {},
): Promise<StandInForge> {
  const { base, path, token, states, fields, context, isUnfinished } = kinds[kind];
  const sockets = new Set<Socket>();

  function answer(request: IncomingMessage, body: Status): Answer {
    const commit = path.exec(request.url ?? '')?.[1];
    const fault = forge.fault?.(body, request);
    if (fault) return fault;
    if (request.method !== 'POST' || !commit) return { status: 404, body: { message: '404 Not Found' } };
    if (token(request.headers) !== TOKEN) return { status: 401, body: { message: 'Bad credentials' } };
    const text = [body.description, body.context, body.name].join('');
    const isWrong =
      Object.keys(body).some(name => !fields.includes(name)) ||
      !states.includes(body.state) ||
      !/^https:\/\//.test(String(body.target_url ?? body.url)) ||
      String(body.description).length > 140 ||
      String(context(body)).length > 255 ||
      !text.isWellFormed() ||
      (kind === 'github' && /[\u{10000}-\u{10ffff}]/u.test(text));
    if (isWrong) return { status: 422, body: { message: 'Validation Failed' } };
    const key = `${commit} ${context(body)}`;
    const known = forge.states.get(key) ?? [];
    if (
      kind === 'gitlab' &&
      (known.at(-1) === body.state || (known.at(-1) === 'running' && body.state === 'pending'))
    )
      return {
        status: 400,
        body: {
          message: `Cannot transition status via :run from :${known.at(-1)} (Reason(s): Status cannot transition)`,
        },
      };
    forge.states.set(key, [...known, body.state]);
    forge.accepted.push(body);
    return { status: kind === 'bitbucket' ? 204 : 201, body: { id: 1, state: body.state } };
  }

  const listener = async (request: IncomingMessage, response: ServerResponse) => {
    const sent = Buffer.concat(await request.toArray()).toString();
    forge.arrived.push((JSON.parse(sent) as Status).state);
    options.onCall?.();
    await forge.hold;
    const { status, body, headers } = answer(request, JSON.parse(sent) as Status);
    forge.answers.push(status);
    response.writeHead(status, headers).end(body === undefined ? '' : JSON.stringify(body));
    options.onCall?.();
  };
  const server = options.tls ? createTlsServer(options.tls, listener) : createServer(listener);
  server.on('connection', (socket: Socket) => sockets.add(socket.on('error', () => {})));
  await once(server.listen(options.port ?? 0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const forge: StandInForge = {
    url: `${options.tls ? 'https' : 'http'}://127.0.0.1:${port}${base}`,
    port,
    states: new Map(),
    accepted: [],
    answers: [],
    arrived: [],
    hold: undefined,
    fault: undefined,
    unfinished: () =>
      [...forge.states].filter(([, all]) => isUnfinished(all.at(-1) ?? '')).map(([key]) => key),
    async close() {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
  return forge;
}
