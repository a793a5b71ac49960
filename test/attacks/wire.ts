// Raw requests that no careful client sends, and forms as another site would send them.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { Agent, request } from 'node:https';
import { connect, type TLSSocket } from 'node:tls';
import { createSession } from '../../src/store/accounts.ts';
import type { Person } from '../support/app.ts';
import { encodeForm, type Fields } from '../support/client.ts';
import type { ServedApp } from '../support/served-app.ts';

export type Reply = { status: number; headers: NodeJS.Dict<string | string[]>; text: string };
export type Visitor = { cookie: string; csrf: string };
/** The token of the session's forms. It has a mask, which may be anything: here it is zeros. */
export function formTokenOf(session: string): string {
  const formKey = createHmac('sha256', session).update('form').digest();
  return Buffer.concat([Buffer.alloc(formKey.length), formKey]).toString('base64url');
}

export type Wire = ReturnType<typeof openWire>;

export const SESSION_COOKIE = '__Host-assay-session';

export function openWire(app: Pick<ServedApp, 'url' | 'client'>, maxSockets = 8) {
  const { hostname, port, origin } = new URL(app.url);
  const { ca } = app.client;
  const agent = new Agent({ keepAlive: true, ca, maxSockets });

  const ask = (
    method: string,
    path: string,
    options: { headers?: Record<string, string | string[]>; form?: Fields; body?: string | Buffer } = {},
  ): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const body = options.form ? encodeForm(options.form) : options.body;
      const headers = {
        ...(options.form && { 'content-type': 'application/x-www-form-urlencoded' }),
        ...(body !== undefined && { 'content-length': String(Buffer.byteLength(body)) }),
        ...options.headers,
      };
      const outgoing = request(
        { agent, hostname, port, method, path, headers, timeout: 20_000 },
        incoming => {
          let text = '';
          const finish = () => resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, text });
          incoming.setEncoding('utf8').on('data', part => {
            text += part;
          });
          // A stream never ends: its beginning is enough.
          if (incoming.headers['content-type']?.startsWith('text/event-stream')) {
            finish();
            incoming.destroy();
          } else incoming.on('end', finish).on('error', reject);
        },
      );
      outgoing.on('timeout', () => outgoing.destroy(new Error(`no response to ${method} ${path}`)));
      outgoing.on('error', reject);
      outgoing.end(body);
    });

  const open = async (ALPNProtocols?: string[]): Promise<TLSSocket> => {
    const socket = connect({
      port: Number(port),
      host: hostname,
      ca,
      ...(ALPNProtocols && { ALPNProtocols }),
    });
    socket.on('error', () => {});
    await once(socket, 'secureConnect');
    return socket;
  };

  /** Everything that is received until the server closes, or until nothing arrives for `quietMs`. */
  const exchange = async (bytes: string | Buffer, quietMs = 30_000): Promise<string> => {
    const socket = await open();
    socket.setTimeout(quietMs, () => socket.destroy());
    let text = '';
    socket.on('data', chunk => {
      text += chunk.toString('latin1');
    });
    socket.write(bytes);
    // Not events.once: a reset is an end too.
    await new Promise(resolve => socket.once('close', resolve));
    return text;
  };

  return { origin, ask, open, exchange, close: () => agent.destroy() };
}

/** The status line of each response on one connection. */
export const statusesIn = (text: string) =>
  [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(match => Number(match[1]));

/** The session cookie after signing in. */
export function visitorFor(app: Pick<ServedApp, 'db'>, person: Person): Visitor {
  const token = createSession(app.db, person.account.id);
  return {
    cookie: `${SESSION_COOKIE}=${token}`,
    csrf: formTokenOf(token),
  };
}

export async function alive(app: Pick<ServedApp, 'client'>): Promise<void> {
  assert.equal((await app.client.get('/ping')).status, 200, 'the server no longer answers');
}
