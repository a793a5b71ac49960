// First-time setup: the code that `assay serve` prints creates the administrator account.

import { html } from 'hono/html';
import type { SentFields } from '../../api/http/body.ts';
import { checkEmail } from '../../domain/names.ts';
import type { Errors } from '../../domain/refusal.ts';
import { hashPassword } from '../../domain/secret.ts';
import { createAccount, hasAccounts } from '../../store/accounts.ts';
import { deleteSetUpCode, isSetUpCode } from '../../store/setup.ts';
import { formTo, renderForm, submitButton, textField } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { open, openForm, type Route } from '../frame/route.ts';
import { beginSession, PASSWORD_LENGTH } from '../frame/session.ts';
import type { Guest, View } from '../frame/visit.ts';
import { attempt, checkNewPassword, renderCard, textOf } from './sign-in.ts';

export const setUpPages: Route[] = [
  open('/ui/setup', guest => (hasAccounts(guest.services.db) ? respondRedirect('/ui') : show(guest))),
  openForm('/ui/setup', setUp),
];

function show(guest: Guest): View {
  const form = formTo(guest, '/ui/setup');
  return {
    title: 'Set up',
    ...(guest.refused && { status: 422 }),
    body: renderCard(
      'Set up Assay',
      'Create the first account, which is an administrator. You can add others later.',
      renderForm(form, {
        fields: html`
${textField(form, { name: 'code', label: 'Code', code: true, required: true, autofocus: true, placeholder: 'XXXX-XXXX', hint: html`Printed by <code>assay serve</code> as “set-up code”.` })}
${textField(form, { name: 'email', label: 'Email', type: 'email', autocomplete: 'username', required: true })}
${textField(form, { name: 'password', label: 'Password', type: 'password', autocomplete: 'new-password', hint: 'At least 8 characters.', required: true, minLength: PASSWORD_LENGTH.least })}`,
        submit: submitButton('Create administrator'),
      }),
    ),
  };
}

async function setUp(guest: Guest, sent: SentFields): Promise<View | Response> {
  const { db } = guest.services;
  if (hasAccounts(db)) return respondRedirect('/ui');
  const code = textOf(sent, 'code').trim();
  const email = textOf(sent, 'email').trim();
  const password = textOf(sent, 'password');
  const errors: Errors = checkNewPassword(password);
  if (email === '') errors.email = ['is_blank'];
  else if (checkEmail(email)) errors.email = ['invalid_format'];
  if (code === '') errors.code = ['is_blank'];
  else {
    const right = await attempt(guest, 'set-up', async () => (isSetUpCode(db, code) ? true : undefined));
    if (!right) errors.code = ['invalid_format'];
  }
  const refuse = () => {
    guest.refused = { action: '/ui/setup', sent, errors };
    return show(guest);
  };
  if (Object.keys(errors).length > 0) return refuse();

  const passwordHash = await hashPassword(password);
  // Check again inside the transaction: the code works only once.
  const account = db.write(() => {
    if (!isSetUpCode(db, code)) return undefined;
    deleteSetUpCode(db);
    return createAccount(db, { email, kind: 'user', admin: true, passwordHash, apiKey: null });
  });
  if (!account) return respondRedirect('/ui');
  return respondRedirect('/ui', {
    message: 'Assay is set up. Create your first project.',
    cookies: [beginSession(guest, account)],
  });
}
