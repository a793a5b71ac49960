// OAuth 2.0 authorization: the page where a user approves or denies an application, and the response to it.

import { html } from 'hono/html';
import type { SentFields } from '../../api/http/body.ts';
import type { Scope } from '../../domain/access.ts';
import { outOfBand } from '../../domain/names.ts';
import {
  type AuthorizationRequest,
  type AuthorizationResult,
  CODE_LIFETIME_MS,
  locationOf,
  validateAuthorization,
} from '../../domain/oauth.ts';
import { findAccount } from '../../store/accounts.ts';
import {
  type Application,
  createAuthorizationCode,
  createToken,
  findApplicationByClientId,
} from '../../store/applications.ts';
import type { Db } from '../../store/database/db.ts';
import { copyText, messageView, pageHead } from '../frame/components.ts';
import { suspendedView } from '../frame/error-pages.ts';
import { formTo } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { form, open, type Route } from '../frame/route.ts';
import type { Guest, View, Visit } from '../frame/visit.ts';
import { textOf } from './sign-in.ts';

export const authorizePages: Route[] = [
  open('/oauth2/authorize', showConsent),
  form('/oauth2/authorize', decide),
];

/** What each scope lets an application do. */
const scopeLabels: Record<Scope, string> = {
  user: 'see your email address',
  projects: 'see and change your projects and their collaborators',
  build_requests: 'see build requests',
  build_requests_create: 'start, cancel and rerun builds',
  commits: 'see commits, builds and their logs',
  suites: 'see and change suites, including the contents of environment variables',
  dependencies: 'see and change your dependencies',
  deploys: 'see deploys, and deploy',
  notifications: 'see and change notifications',
};

function validate(
  db: Db,
  parameters: URLSearchParams,
): { result: AuthorizationResult; application: Application | undefined } {
  const application = findApplicationByClientId(db, parameters.get('client_id') ?? '');
  const result = validateAuthorization(
    parameters,
    application && {
      redirectUri: application.redirectUri,
      isPublic: application.clientSecretDigest === null,
      isBuiltIn: application.ownerId === null,
    },
  );
  return { result, application };
}

function showConsent(guest: Guest): View | Response {
  const { result, application } = validate(guest.services.db, guest.url.searchParams);
  if (result.kind === 'page') return refusedView(result.reason);
  if (result.kind === 'redirect') return respondRedirect(result.location);
  if (!guest.session || !guest.caller)
    return respondRedirect(`/ui/sign-in?next=${encodeURIComponent(guest.url.pathname + guest.url.search)}`);
  if (guest.caller.standing === 'suspended') return suspendedView;
  return consentView(guest, result.request, application as Application);
}

function refusedView(reason: string): View {
  return messageView('Request refused', 400, {
    title: 'This request cannot be approved',
    text: html`${reason} Nothing was sent to the application. Contact its developer.`,
  });
}

function consentView(guest: Guest, request: AuthorizationRequest, application: Application): View {
  const consent = formTo(guest, '/oauth2/authorize');
  const where =
    request.redirectUri === outOfBand
      ? 'You get a code to paste into the application.'
      : html`You are then sent back to <code>${request.redirectUri}</code>.`;
  const { ownerId } = application;
  const origin =
    ownerId === null
      ? 'included with this server'
      : html`registered by ${findAccount(guest.services.db, ownerId)?.email ?? 'a deleted account'}`;
  return {
    title: 'Approve',
    ...(request.redirectUri !== outOfBand && { formTargets: [targetOf(request.redirectUri)] }),
    body: html`<div class="gate">${pageHead(html`Approve ${application.name}?`)}
<p class="lead"><strong>${application.name}</strong>, ${origin}, asks to act for <strong>${guest.caller?.email}</strong>. It would be able to:</p>
<ul class="scopes">${request.scopes.map(scope => html`<li>${scopeLabels[scope]} <code class="quiet">${scope}</code></li>`)}</ul>
${ownerId === null ? html`<p><strong>Continue only if you ran <code>assay login</code> yourself, just now, on this machine.</strong></p>` : ''}
<p>${where} You can revoke this access under Applications at any time.</p>
<form method="post" action="/oauth2/authorize" class="form">
<input type="hidden" name="csrf" value="${consent.csrf}">
<input type="hidden" name="request" value="${guest.url.search}">
<div class="buttons">
<button class="button primary" type="submit" name="decision" value="approve">Approve</button>
<button class="button plain" type="submit" name="decision" value="deny">Deny</button>
</div>
</form></div>`,
  };
}

/**
 * The redirect target for the content security policy: the origin, or the scheme of an address without one. A policy cannot
 * name an IPv6 address.
 */
function targetOf(redirectUri: string): string {
  const { origin, protocol, hostname } = new URL(redirectUri);
  return origin === 'null' || hostname.startsWith('[') ? protocol : origin;
}

function decide(visit: Visit, sent: SentFields): View | Response {
  const { db } = visit.services;
  // Validate again: the application or the form may have changed since the page was shown.
  const { result, application } = validate(db, new URLSearchParams(textOf(sent, 'request')));
  if (result.kind === 'page') return refusedView(result.reason);
  if (result.kind === 'redirect') return respondRedirect(result.location);
  const { request } = result;
  const { id: applicationId } = application as Application;
  const grant = { accountId: visit.account.id, applicationId, scopes: request.scopes };
  const inFragment = request.responseType === 'token';
  if (textOf(sent, 'decision') !== 'approve') {
    if (request.redirectUri === outOfBand)
      return respondRedirect('/ui', { message: 'Denied. The application has no access.' });
    return respondRedirect(
      locationOf(request.redirectUri, { error: 'access_denied', state: request.state }, inFragment),
    );
  }
  if (inFragment) {
    const answer = {
      access_token: createToken(db, grant).token,
      token_type: 'bearer',
      scope: request.scopes.join(' '),
      state: request.state,
    };
    return respondRedirect(locationOf(request.redirectUri, answer, true));
  }
  const code = createAuthorizationCode(db, {
    ...grant,
    redirectUri: request.redirectUri,
    codeChallenge: request.codeChallenge,
    lifetimeMs: CODE_LIFETIME_MS,
  });
  if (request.redirectUri !== outOfBand)
    return respondRedirect(locationOf(request.redirectUri, { code, state: request.state }, false));
  return {
    title: 'Authorization code',
    body: html`<div class="gate">${pageHead('Authorization code')}
<p class="lead">Paste this code into <strong>${application?.name}</strong>. It works once, within 10 minutes.</p>
${copyText(code, 'Copy code')}</div>`,
  };
}
