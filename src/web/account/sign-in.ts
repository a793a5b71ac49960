// Signing in and out, and the one-time link that lets an invited user set a password.

import { html } from 'hono/html';
import type { SentFields } from '../../api/http/body.ts';
import { addressOf } from '../../api/http/caller-address.ts';
import { standingOf } from '../../domain/access.ts';
import { callerNetwork } from '../../domain/caller-address.ts';
import type { Errors } from '../../domain/refusal.ts';
import { hashPassword } from '../../domain/secret.ts';
import { claimSignInLink, findSignInLink, hasAccounts, setPassword } from '../../store/accounts.ts';
import { linkButton, messageView, pageHead } from '../frame/components.ts';
import { formTo, renderForm, submitButton, textField } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { form, open, openForm, type Route } from '../frame/route.ts';
import { beginSession, endSession, findByPassword, localPath, PASSWORD_LENGTH } from '../frame/session.ts';
import type { Guest, Html, View } from '../frame/visit.ts';

export const signInPages: Route[] = [
  open('/ui/sign-in', guest => {
    if (guest.session) return respondRedirect(localPath(guest.url.searchParams.get('next')));
    if (!hasAccounts(guest.services.db)) return respondRedirect('/ui/setup');
    return showSignIn(guest, localPath(guest.url.searchParams.get('next')));
  }),
  openForm('/ui/sign-in', signIn),
  form('/ui/sign-out', visit =>
    respondRedirect('/ui/sign-in', { cookies: [endSession(visit.services.db, visit.session)] }),
  ),
  open('/ui/welcome', guest => showWelcome(guest, guest.url.searchParams.get('link') ?? '')),
  openForm('/ui/welcome', welcome),
];

export const textOf = (sent: SentFields, name: string): string => {
  const value = sent.get(name);
  return typeof value === 'string' ? value : '';
};

/** The errors of a new password. */
export function checkNewPassword(password: string): Errors {
  if (password === '') return { password: ['is_blank'] };
  const fits = password.length >= PASSWORD_LENGTH.least && password.length <= PASSWORD_LENGTH.most;
  return fits ? {} : { password: ['invalid_format'] };
}

/** A card in the middle of an otherwise empty page. */
export function renderCard(title: string, text: Html | string, body: Html): Html {
  return html`<div class="gate">${pageHead(title)}${text ? html`<p class="lead">${text}</p>` : ''}${body}</div>`;
}

/** Checks a guess at the secret of `subject`, throttled. Throws TooManyAttempts. */
export function attempt<T>(
  { site, services, outgoing }: Guest,
  subject: string,
  guess: () => Promise<T | undefined>,
): Promise<T | undefined> {
  const gone = new AbortController();
  if (outgoing.destroyed) gone.abort();
  else outgoing.once('close', () => gone.abort());
  const caller = callerNetwork(addressOf(outgoing, services));
  return site.throttle.attempt({ caller, subject, gone: gone.signal }, guess);
}

function showSignIn(guest: Guest, next: string, problem = ''): View {
  const signInForm = formTo(guest, '/ui/sign-in');
  return {
    title: 'Sign in',
    ...(problem && { status: 422 }),
    body: renderCard(
      'Sign in',
      '',
      renderForm(problem ? { ...signInForm, otherErrors: () => [problem] } : signInForm, {
        fields: html`<input type="hidden" name="next" value="${next}">
${textField(signInForm, { name: 'email', label: 'Email', type: 'email', autocomplete: 'username', required: true, autofocus: true })}
${textField(signInForm, { name: 'password', label: 'Password', type: 'password', autocomplete: 'current-password', required: true })}`,
        submit: submitButton('Sign in'),
      }),
    ),
  };
}

async function signIn(guest: Guest, sent: SentFields): Promise<View | Response> {
  const { db } = guest.services;
  const email = textOf(sent, 'email').trim();
  const next = localPath(textOf(sent, 'next'));
  const account = await attempt(guest, email.toLowerCase(), () =>
    findByPassword(db, email, textOf(sent, 'password')),
  );
  if (account && standingOf(account, db.now()) !== 'suspended')
    return respondRedirect(next, { cookies: [beginSession(guest, account)] });
  guest.refused = { action: '/ui/sign-in', sent, errors: {} };
  return showSignIn(
    guest,
    next,
    account ? 'This account is suspended. Ask your administrator.' : 'The email or the password is wrong.',
  );
}

const invalidLinkView = messageView('Link not valid', 404, {
  title: 'This link is no longer valid',
  text: 'It has been used, is older than seven days, or was replaced by a newer link. If you have a password, sign in with it. Otherwise ask the person who invited you for a new link.',
  action: linkButton('/ui/sign-in', 'Sign in'),
});

function showWelcome(guest: Guest, link: string): View {
  const account = findSignInLink(guest.services.db, link);
  if (!account) return invalidLinkView;
  const welcomeForm = formTo(guest, '/ui/welcome');
  return {
    title: 'Welcome',
    ...(guest.refused && { status: 422 }),
    body: renderCard(
      'Welcome to Assay',
      html`Choose a password for <strong>${account.email}</strong>.`,
      renderForm(welcomeForm, {
        fields: html`<input type="hidden" name="link" value="${link}">
<input type="hidden" name="email" value="${account.email}" autocomplete="username">
${textField(welcomeForm, { name: 'password', label: 'Password', type: 'password', autocomplete: 'new-password', hint: 'At least 8 characters.', required: true, autofocus: true, minLength: PASSWORD_LENGTH.least })}`,
        submit: submitButton('Set password and sign in'),
      }),
    ),
  };
}

async function welcome(guest: Guest, sent: SentFields): Promise<View | Response> {
  const { db } = guest.services;
  const link = textOf(sent, 'link');
  const password = textOf(sent, 'password');
  const errors = checkNewPassword(password);
  if (Object.keys(errors).length > 0) {
    guest.refused = { action: '/ui/welcome', sent, errors };
    return showWelcome(guest, link);
  }
  if (!findSignInLink(db, link)) return invalidLinkView;
  const passwordHash = await hashPassword(password);
  const account = db.write(() => {
    const claimed = claimSignInLink(db, link);
    if (claimed) setPassword(db, claimed.id, passwordHash);
    return claimed;
  });
  if (!account) return invalidLinkView;
  return respondRedirect('/ui', {
    message: 'Password set.',
    cookies: [beginSession(guest, account)],
  });
}
