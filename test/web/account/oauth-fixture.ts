// The fixture of the OAuth tests: accounts with passwords, a server for the redirect URI of an application, and a fetch
// that trusts the server's CA.
import { createServer } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { hashPassword } from '../../../src/domain/secret.ts';
import { setPassword } from '../../../src/store/accounts.ts';
import { createApplication } from '../../../src/store/applications.ts';
import { bootApp, type TestApp } from '../../support/app.ts';

export const PASSWORD = 'correct horse battery';

export type Registered = { clientId: string; clientSecret: string | undefined };
export type OAuthFixture = TestApp & {
  /** The redirect URI of applications. */
  callback: string;
  /** Registers an application of the administrator. */
  register(options?: { isPublic?: boolean; redirectUri?: string; name?: string }): Registered;
  authorizeUrl(fields: Record<string, string>): string;
  fetch(url: string, init?: FetchInit): Promise<Response>;
};
export type FetchInit = {
  method?: string;
  headers?: Record<string, string> | Headers;
  body?: unknown;
};

export async function openOAuthFixture(): Promise<OAuthFixture> {
  const app = await bootApp();
  const { db, people, client } = app;
  const passwordHash = await hashPassword(PASSWORD);
  for (const { account } of [people.owner, people.stranger, people.admin])
    setPassword(db, account.id, passwordHash);
  const server = createServer((_, response) => {
    response.setHeader('content-type', 'text/html; charset=utf-8');
    response.end(
      '<!doctype html><html lang="en"><title>Back</title><link rel="icon" href="data:,"><p>Back again',
    );
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const callback = `http://127.0.0.1:${(server.address() as AddressInfo).port}/back`;
  const closeApp = app.close;
  return Object.assign(app, {
    callback,
    register: ({ isPublic = false, redirectUri = callback, name = 'Dashboard' } = {}) => {
      const { application, clientSecret } = createApplication(db, {
        ownerId: people.admin.account.id,
        name,
        redirectUri,
        isPublic,
      });
      return { clientId: application.clientId, clientSecret };
    },
    authorizeUrl: (fields: Record<string, string>) => `/oauth2/authorize?${new URLSearchParams(fields)}`,
    fetch: (url: string, init: FetchInit = {}) => fetchTrusting(client.ca, new URL(url, app.url), init),
    close: async () => {
      server.close();
      await closeApp();
    },
  });
}

/** Does not follow redirects, because tests check where they lead. */
function fetchTrusting(ca: string, url: URL, init: FetchInit): Promise<Response> {
  return new Promise((resolve, reject) => {
    const headers = Object.fromEntries(new Headers(init.headers));
    const body = init.body == null ? undefined : String(init.body);
    const outgoing = httpsRequest(
      url,
      { ca, method: init.method ?? 'GET', headers, agent: false },
      incoming => {
        const chunks: Buffer[] = [];
        incoming.on('data', chunk => chunks.push(chunk));
        incoming.on('error', reject);
        incoming.on('end', () => {
          const answer = new Headers();
          for (const [name, value] of Object.entries(incoming.headersDistinct))
            for (const one of value ?? []) answer.append(name, one);
          resolve(new Response(Buffer.concat(chunks), { status: incoming.statusCode ?? 0, headers: answer }));
        });
      },
    );
    outgoing.setTimeout(20_000, () => outgoing.destroy(new Error(`no answer from ${url.pathname}`)));
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

export const bodyOf = async (answer: Response) => (await answer.json()) as Record<string, string>;
