// Sign-in through the browser: OAuth with PKCE. The browser returns the code to a port of this machine (RFC 8252).

import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { CommandError } from '../command/command.ts';
import { scopes } from '../domain/access.ts';
import { COMMAND_LINE_CLIENT_ID, COMMAND_LINE_PATH } from '../domain/oauth.ts';
import { openConnection, readText } from './connection.ts';
import { EXIT, refused } from './exit-status.ts';
import type { Host } from './hosts.ts';
import { openBrowser } from './open-browser.ts';

const DEADLINE_MS = 5 * 60_000;

type Server = Pick<Host, 'url' | 'ca'>;
type Grant = { code: string; redirectUri: string; verifier: string };

/** Resolves with an access token. */
export async function signInWithBrowser(
  server: Server,
  environment: NodeJS.ProcessEnv,
  deadlineMs = DEADLINE_MS,
): Promise<string> {
  const verifier = randomBytes(32).toString('base64url');
  const state = randomBytes(32).toString('base64url');
  const listener = createServer();
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = `127.0.0.1:${(listener.address() as AddressInfo).port}`;
  const redirectUri = `http://${address}${COMMAND_LINE_PATH}`;
  const stopped = new AbortController();
  const interrupt = () => stopped.abort(new CommandError('interrupted', EXIT.interrupted));
  process.once('SIGINT', interrupt);
  const timer = setTimeout(() => {
    stopped.abort(refused(`nobody signed in within ${deadlineMs / 60_000} minutes: run "assay login" again`));
  }, deadlineMs);
  try {
    const token = new Promise<string>((resolve, reject) => {
      stopped.signal.addEventListener('abort', () => reject(stopped.signal.reason));
      let isAnswered = false;
      listener.on('request', (request, response) => {
        const { method, headers, url: target = '' } = request;
        const [path, query] = target.split('?', 2);
        // A page of another site that resolves its name to this machine sends that name.
        if (method !== 'GET' || headers.host !== address || path !== COMMAND_LINE_PATH)
          return respond(response, 404, 'There is nothing here.');
        const parameters = new URLSearchParams(query);
        if (parameters.get('state') !== state || isAnswered)
          return respond(response, 400, 'This does not belong to the sign-in that waits in the terminal.');
        isAnswered = true;
        const code = parameters.get('code');
        if (code === null) {
          const reason = parameters.get('error') === 'access_denied' ? 'denied' : 'refused';
          respond(response, 200, `The sign-in was ${reason}. You can close this window.`);
          response.once('close', () => reject(refused(`the sign-in was ${reason} in the browser`)));
          return;
        }
        redeem(server, { code, redirectUri, verifier }).then(
          granted => {
            respond(response, 200, 'You are signed in. You can close this window.');
            response.once('close', () => resolve(granted));
          },
          error => {
            respond(response, 502, 'The sign-in failed. The terminal shows why.');
            response.once('close', () => reject(error));
          },
        );
      });
    });
    const page = `${server.url}/oauth2/authorize?${new URLSearchParams({
      client_id: COMMAND_LINE_CLIENT_ID,
      redirect_uri: redirectUri,
      scope: scopes.join(' '),
      state,
      code_challenge: createHash('sha256').update(verifier).digest('base64url'),
      code_challenge_method: 'S256',
    })}`;
    process.stderr.write(
      `Sign in with your browser. If it does not open, go to this address on this machine:\n\n  ${page}\n\n`,
    );
    process.stderr.write(`Without a browser here: assay login ${server.url} --with-key\n`);
    openBrowser(page, environment);
    return await token;
  } finally {
    process.off('SIGINT', interrupt);
    clearTimeout(timer);
    listener.close();
    listener.closeAllConnections();
  }
}

function respond(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy':
      "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
    connection: 'close',
  });
  response.end(
    `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark"><meta name="viewport" content="width=device-width"><title>Assay</title><h1>Assay</h1><p>${text}</p></html>\n`,
  );
}

async function redeem(server: Server, { code, redirectUri, verifier }: Grant): Promise<string> {
  const connection = openConnection({ ...server, credentials: undefined });
  try {
    const response = await connection.send('POST', '/oauth2/access_token', {
      fields: {
        grant_type: 'authorization_code',
        client_id: COMMAND_LINE_CLIENT_ID,
        code,
        redirect_uri: redirectUri,
        code_verifier: verifier,
      },
    });
    const text = await readText(response);
    if (response.statusCode === 200) return (JSON.parse(text) as { access_token: string }).access_token;
    throw refused('the server did not accept the sign-in of the browser: run "assay login" again');
  } finally {
    connection.close();
  }
}
