// The account page: theme and time zone, password, sessions, API key, and what else has access to the account.

import { html } from 'hono/html';
import type { SentFields } from '../../api/http/body.ts';
import { type Errors, Refusal, refusal } from '../../domain/refusal.ts';
import { parseDisplay } from '../../domain/registration.ts';
import { hashPassword } from '../../domain/secret.ts';
import { countOf } from '../../domain/text/count.ts';
import type { Theme } from '../../domain/theme.ts';
import {
  deleteOtherSessions,
  deleteSessionByKey,
  findAccount,
  listSessions,
  replaceApiKey,
  setPassword,
  updateAccount,
} from '../../store/accounts.ts';
import { listTokens } from '../../store/applications.ts';
import { listWallLinks } from '../../store/wall-links.ts';
import { copyText, linkButton, pageHead, propertyList, relativeTime, table } from '../frame/components.ts';
import { actionButton, formTo, renderForm, selectField, submitButton, textField } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { form, orShowAgain, page, type Route } from '../frame/route.ts';
import { beginSession, findByPassword, PASSWORD_LENGTH } from '../frame/session.ts';
import type { Html, View, Visit } from '../frame/visit.ts';
import { secretView } from './applications.ts';
import { browserName } from './browser-name.ts';
import { attempt, checkNewPassword, textOf } from './sign-in.ts';

const PATH = '/ui/account';
const SESSIONS_SHOWN = 50;

export const accountPages: Route[] = [
  page(PATH, showAccount),
  form(`${PATH}/display`, saveDisplay),
  form(`${PATH}/password`, changePassword),
  form(`${PATH}/api-key`, createApiKey),
  form(`${PATH}/sessions/end-others`, endOtherSessions),
  form(`${PATH}/sessions/:session/end`, endOneSession),
];

function showAccount(visit: Visit): View {
  const { account } = visit;
  return {
    title: 'Account',
    section: 'account',
    body: html`${pageHead('Account')}
<div class="panel">${propertyList([
      ['Email', account.email],
      ['Kind', `${kindLabels[account.kind]}${account.admin ? ', administrator' : ''}`],
      ['Member since', relativeTime(account.createdAt)],
    ])}</div>
<section class="panel" aria-labelledby="display"><h2 id="display">Display</h2>${renderDisplay(visit)}</section>
<section class="panel" aria-labelledby="password"><h2 id="password">Password</h2>${renderPassword(visit)}</section>
<section aria-labelledby="sessions"><h2 id="sessions">Sessions</h2>${renderSessions(visit)}</section>
<section class="panel" aria-labelledby="api-key"><h2 id="api-key">API key</h2>${renderApiKey(visit)}</section>
<section class="panel" aria-labelledby="access"><h2 id="access">Other access</h2>${renderAccess(visit)}</section>`,
  };
}

const kindLabels = {
  user: 'User: owns projects and dependencies',
  collaborator: 'Collaborator: works on other people’s projects',
};

const themeLabels: Record<Theme, string> = { system: 'Same as the system', light: 'Light', dark: 'Dark' };

function renderDisplay(visit: Visit): Html {
  const { theme, timeZone } = visit.account;
  const display = formTo(visit, `${PATH}/display`, { theme, time_zone: timeZone });
  return renderForm(display, {
    fields: html`${selectField(display, { name: 'theme', label: 'Theme', required: true, choices: Object.entries(themeLabels).map(([value, label]) => ({ value, label })) })}
${textField(display, { name: 'time_zone', label: 'Time zone', code: true, placeholder: 'Europe/Berlin', suggestions: ['UTC', ...Intl.supportedValuesOf('timeZone')], hint: 'Leave empty to use the time zone of your browser.' })}`,
    submit: submitButton('Save'),
  });
}

function saveDisplay(visit: Visit, sent: SentFields): Promise<View | Response> {
  return orShowAgain(visit, sent, showAccount, () => {
    const display = parseDisplay({ theme: textOf(sent, 'theme'), timeZone: textOf(sent, 'time_zone') });
    updateAccount(visit.services.db, visit.account.id, display);
    return respondRedirect(PATH, { message: 'Display settings saved.' });
  });
}

function renderPassword(visit: Visit): Html {
  const hasPassword = visit.account.passwordHash !== null;
  const change = formTo(visit, `${PATH}/password`);
  return renderForm(change, {
    fields: html`<p class="hint">${hasPassword ? 'A new password' : 'You have no password yet. Setting one'} ends all other sessions and the access of all applications. Your API key and links to the wall screen keep working.</p>
<input type="hidden" name="email" value="${visit.account.email}" autocomplete="username">
${hasPassword ? textField(change, { name: 'current_password', label: 'Current password', type: 'password', autocomplete: 'current-password', required: true }) : ''}
${textField(change, { name: 'password', label: 'New password', type: 'password', autocomplete: 'new-password', hint: `At least ${PASSWORD_LENGTH.least} characters.`, required: true, minLength: PASSWORD_LENGTH.least })}`,
    submit: submitButton(hasPassword ? 'Change password' : 'Set password'),
  });
}

/** Guesses at the current password are throttled together with those on the sign-in page. */
function changePassword(visit: Visit, sent: SentFields): Promise<View | Response> {
  const { account, services } = visit;
  const { db } = services;
  return orShowAgain(visit, sent, showAccount, async () => {
    const password = textOf(sent, 'password');
    const current = textOf(sent, 'current_password');
    const errors: Errors = checkNewPassword(password);
    if (account.passwordHash !== null) {
      if (current === '') errors.current_password = ['is_blank'];
      else if (!(await attempt(visit, account.email, () => findByPassword(db, account.email, current))))
        errors.current_password = ['invalid_format'];
    }
    if (Object.keys(errors).length > 0) throw new Refusal(403, errors);
    const passwordHash = await hashPassword(password);
    const cookie = db.write(() => {
      // An administrator may have reset the password meanwhile, which ended this session.
      if (findAccount(db, account.id)?.passwordHash !== account.passwordHash) return undefined;
      setPassword(db, account.id, passwordHash);
      return beginSession(visit, account);
    });
    if (cookie === undefined) return respondRedirect(PATH);
    return respondRedirect(PATH, {
      message: `Password ${account.passwordHash === null ? 'set' : 'changed'}. All other sessions were ended.`,
      cookies: [cookie],
    });
  });
}

function renderSessions(visit: Visit): Html {
  const { account, services, session } = visit;
  const sessions = listSessions(services.db, account.id, session.token, SESSIONS_SHOWN);
  const others = formTo(visit, `${PATH}/sessions/end-others`);
  return html`<p class="lead">A session ends when you sign out, or 30 days after you signed in. If you do not recognize one, end it and change your password.</p>
${table({
  caption: 'Sessions',
  columns: ['Browser', 'Address', 'Signed in', 'Last used', 'Actions'],
  rows: sessions.map(one => ({
    cells: [
      html`${browserName(one.userAgent)}${one.isCurrent ? html` <span class="tag">this session</span>` : ''}`,
      one.address === '' ? html`<span class="quiet">unknown</span>` : html`<code>${one.address}</code>`,
      relativeTime(one.createdAt, services.db.now()),
      relativeTime(one.usedAt, services.db.now()),
      one.isCurrent
        ? html`<span class="quiet">—</span>`
        : actionButton(formTo(visit, `${PATH}/sessions/${one.key}/end`), 'End', { tone: 'danger' }),
    ],
  })),
})}
${
  sessions.length > 1
    ? html`<p>${actionButton(others, 'End all other sessions', { tone: 'danger', confirm: 'End all sessions except this one?', yes: 'End sessions', no: 'Keep them' })}</p>`
    : ''
}`;
}

function endOneSession(visit: Visit): Response {
  if (!deleteSessionByKey(visit.services.db, visit.account.id, visit.params.session ?? ''))
    throw refusal('not_found');
  return respondRedirect(`${PATH}#sessions`, { message: 'Session ended.' });
}

function endOtherSessions(visit: Visit): Response {
  const count = deleteOtherSessions(visit.services.db, visit.account.id, visit.session.token);
  return respondRedirect(`${PATH}#sessions`, { message: `${countOf(count, 'session')} ended.` });
}

function renderApiKey(visit: Visit): Html {
  const hasKey = visit.account.apiKeyDigest !== null;
  return html`<p>Scripts sign in with your email and this key as HTTP Basic credentials. ${hasKey ? 'You have a key, which cannot be shown again. A new key replaces it.' : 'You have no key yet.'}</p>
${actionButton(formTo(visit, `${PATH}/api-key`), 'New API key', hasKey ? { confirm: 'Create a new API key? The old one stops working at once.', yes: 'Create new API key', no: 'Keep old key' } : {})}`;
}

function createApiKey(visit: Visit): View {
  const key = replaceApiKey(visit.services.db, visit.account.id);
  return secretView(
    'Your new API key',
    [
      ['Email', html`<code>${visit.account.email}</code>`],
      ['API key', copyText(key, 'Copy key')],
    ],
    { href: PATH, label: 'Account', section: 'account' },
  );
}

function renderAccess(visit: Visit): Html {
  const tokens = listTokens(visit.services.db, visit.account.id);
  const names = [...new Map(tokens.map(({ application }) => [application.id, application.name])).values()];
  const links = listWallLinks(visit.services.db, visit.account.id).length;
  return html`<p>${
    names.length === 0
      ? 'No application has access to your account.'
      : html`${names.length === 1 ? 'One application has' : `${names.length} applications have`} access to your account: ${new Intl.ListFormat('en').format(names)}.`
  } ${links === 0 ? 'No link' : countOf(links, 'link')} ${links > 1 ? 'show' : 'shows'} your wall screen without a sign-in.</p>
<div class="buttons">${linkButton('/ui/applications', 'Manage applications')} ${linkButton('/ui/wall/links', 'Manage links')}</div>`;
}
