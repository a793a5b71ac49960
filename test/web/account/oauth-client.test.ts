// OAuth with a public client library: discovery, client authentication methods, revocation, errors.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import * as oauth from 'oauth4webapi';
import {
  bodyOf,
  type FetchInit,
  type OAuthFixture,
  openOAuthFixture,
  PASSWORD,
  type Registered,
} from './oauth-fixture.ts';

describe('OAuth with a client library', { timeout: 600_000 }, () => {
  let fixture: OAuthFixture;
  let server: oauth.AuthorizationServer;
  let cookie: string;
  const options = {
    [oauth.customFetch]: (url: string, init: unknown) => fixture.fetch(url, init as FetchInit),
  };

  before(async () => {
    fixture = await openOAuthFixture();
    const issuer = new URL(fixture.url);
    server = await oauth.processDiscoveryResponse(
      issuer,
      await oauth.discoveryRequest(issuer, { ...options, algorithm: 'oauth2' }),
    );
    const signedIn = await post('/ui/sign-in', { email: 'owner@example.org', password: PASSWORD });
    cookie = signedIn.headers
      .getSetCookie()
      .map(one => one.split(';')[0])
      .join('; ');
  });
  after(() => fixture?.close());

  const post = (path: string, fields: Record<string, string>, headers: Record<string, string> = {}) =>
    fixture.fetch(path, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded', origin: fixture.url, ...headers },
      body: new URLSearchParams(fields),
    });

  /** The owner approves the request through the page; returns the redirect URL. */
  async function approve(client: oauth.Client, fields: Record<string, string>): Promise<URL> {
    const url = new URL(server.authorization_endpoint as string);
    url.search = new URLSearchParams({
      client_id: client.client_id,
      redirect_uri: fixture.callback,
      response_type: 'code',
      scope: 'user commits',
      ...fields,
    }).toString();
    const page = await (await fixture.fetch(url.href, { headers: { cookie } })).text();
    const csrf = /name="csrf" value="([^"]+)"/.exec(page)?.[1] ?? '';
    const form = { csrf, request: url.search, decision: 'approve' };
    const sent = await post(url.pathname, form, { cookie });
    return new URL(sent.headers.get('location') ?? 'about:blank');
  }
  const clientOf = ({ clientId }: Registered): oauth.Client => ({ client_id: clientId });
  const isOAuthError = (code: string, status: number) => (error: unknown) =>
    error instanceof oauth.ResponseBodyError && error.error === code && error.status === status;

  async function exchange(
    client: oauth.Client,
    authentication: oauth.ClientAuth,
    parameters: URLSearchParams,
    verifier: string | typeof oauth.nopkce,
    redirectUri = fixture.callback,
  ) {
    const response = await oauth.authorizationCodeGrantRequest(
      server,
      client,
      authentication,
      parameters,
      redirectUri,
      verifier,
      options,
    );
    return oauth.processAuthorizationCodeResponse(server, client, response);
  }
  const mayStill = async (token: string, path = '/whoami') => {
    const url = new URL(path, fixture.url);
    return (await oauth.protectedResourceRequest(token, 'GET', url, undefined, undefined, options)).status;
  };

  it('publishes the metadata of RFC 8414', () => {
    assert.equal(server.issuer, fixture.url);
    assert.deepEqual(server.code_challenge_methods_supported, ['S256']);
    assert.deepEqual(server.token_endpoint_auth_methods_supported, [
      'client_secret_basic',
      'client_secret_post',
      'none',
    ]);
    assert.ok(server.scopes_supported?.includes('build_requests_create'));
  });

  it('gives a public client a token with PKCE, which works and can be revoked', async () => {
    const client = clientOf(fixture.register({ isPublic: true }));
    const verifier = oauth.generateRandomCodeVerifier();
    const state = oauth.generateRandomState();
    const back = await approve(client, {
      state,
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    });
    const parameters = oauth.validateAuthResponse(server, client, back, state);
    const granted = await exchange(client, oauth.None(), parameters, verifier);
    assert.deepEqual([granted.token_type, granted.scope], ['bearer', 'user commits']);
    assert.equal(await mayStill(granted.access_token), 200);
    assert.equal(await mayStill(granted.access_token, '/projects'), 401, 'it has no scope for projects');
    for (let n = 0; n < 2; n += 1)
      await oauth.processRevocationResponse(
        await oauth.revocationRequest(server, client, oauth.None(), granted.access_token, options),
      );
    assert.equal(await mayStill(granted.access_token), 401);
  });

  for (const [name, authenticate] of [
    ['client_secret_basic', oauth.ClientSecretBasic],
    ['client_secret_post', oauth.ClientSecretPost],
  ] as const)
    it(`accepts the client’s secret by ${name}, with or without PKCE`, async () => {
      const registered = fixture.register();
      const client = clientOf(registered);
      const authentication = authenticate(registered.clientSecret as string);
      const plain = oauth.validateAuthResponse(
        server,
        client,
        await approve(client, {}),
        oauth.expectNoState,
      );
      const granted = await exchange(client, authentication, plain, oauth.nopkce);
      assert.equal(await mayStill(granted.access_token), 200);
      await assert.rejects(
        exchange(client, authentication, plain, oauth.nopkce),
        isOAuthError('invalid_grant', 400),
      );
      assert.equal(await mayStill(granted.access_token), 401, 'used twice, the code revokes its token');

      const verifier = oauth.generateRandomCodeVerifier();
      const challenge = {
        code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
      };
      const back = await approve(client, challenge);
      const parameters = oauth.validateAuthResponse(server, client, back, oauth.expectNoState);
      await assert.rejects(
        exchange(client, authentication, parameters, oauth.generateRandomCodeVerifier()),
        isOAuthError('invalid_grant', 400),
      );
      assert.ok(await exchange(client, authentication, parameters, verifier));
    });

  it('refuses wrong secrets, foreign codes, other redirect URIs and unknown grants as RFC 6749 requires', async () => {
    const registered = fixture.register();
    const client = clientOf(registered);
    const own = oauth.ClientSecretPost(registered.clientSecret as string);
    const parameters = oauth.validateAuthResponse(
      server,
      client,
      await approve(client, {}),
      oauth.expectNoState,
    );
    await assert.rejects(
      exchange(client, oauth.ClientSecretPost('wrong'), parameters, oauth.nopkce),
      isOAuthError('invalid_client', 401),
    );
    await assert.rejects(
      exchange(client, oauth.None(), parameters, oauth.nopkce),
      isOAuthError('invalid_client', 401),
    );
    await assert.rejects(
      exchange(client, oauth.ClientSecretBasic('wrong'), parameters, oauth.nopkce),
      error => error instanceof oauth.WWWAuthenticateChallengeError && error.status === 401,
    );
    const other = fixture.register();
    await assert.rejects(
      exchange(
        clientOf(other),
        oauth.ClientSecretPost(other.clientSecret as string),
        parameters,
        oauth.nopkce,
      ),
      isOAuthError('invalid_grant', 400),
    );
    await assert.rejects(
      exchange(client, own, parameters, oauth.nopkce, `${fixture.callback}/`),
      isOAuthError('invalid_grant', 400),
    );
    const grant = async (type: string) =>
      oauth.processGenericTokenEndpointResponse(
        server,
        client,
        await oauth.genericTokenEndpointRequest(server, client, own, type, {}, options),
      );
    for (const type of ['password', 'client_credentials', 'refresh_token'])
      await assert.rejects(grant(type), isOAuthError('unsupported_grant_type', 400));
    await assert.rejects(grant('authorization_code'), isOAuthError('invalid_request', 400));
    assert.ok(await exchange(client, own, parameters, oauth.nopkce), 'none of them has used the code up');
  });

  it('does not revoke tokens of another client, and accepts no secrets in the URL', async () => {
    const [mine, other] = [fixture.register(), fixture.register()];
    const client = clientOf(mine);
    const own = oauth.ClientSecretBasic(mine.clientSecret as string);
    const parameters = oauth.validateAuthResponse(
      server,
      client,
      await approve(client, {}),
      oauth.expectNoState,
    );
    const { access_token: token } = await exchange(client, own, parameters, oauth.nopkce);
    const foreign = oauth.ClientSecretBasic(other.clientSecret as string);
    await oauth.processRevocationResponse(
      await oauth.revocationRequest(server, clientOf(other), foreign, token, options),
    );
    assert.equal(await mayStill(token), 200);
    const fields = { grant_type: 'authorization_code', client_id: mine.clientId, code: 'x' };
    const leaked = await post(`/oauth2/access_token?client_secret=${mine.clientSecret}`, fields);
    assert.deepEqual([leaked.status, (await bodyOf(leaked)).error], [400, 'invalid_request']);
    assert.equal(leaked.headers.get('cache-control'), 'no-store');
  });
});
