// The error pages: not found, suspended account, invalid form, refused request, and defect of the server.

import { html } from 'hono/html';
import { errorMessage } from '../../contract/error-text.ts';
import { Refusal } from '../../domain/refusal.ts';
import { TooManyAttempts } from '../account/throttle.ts';
import { linkButton, messageView } from './components.ts';
import type { View } from './visit.ts';

const home = linkButton('/ui', 'Go to projects');

export const notFoundView = messageView('Not found', 404, {
  title: 'Page not found',
  text: 'It was deleted, never existed, or is not shared with you.',
  action: home,
});

export const suspendedView = messageView('Account suspended', 403, {
  title: 'Your account is suspended',
  text: 'You cannot view or change anything until an administrator reactivates it.',
});

export const invalidFormView = messageView('Form refused', 403, {
  title: 'This form is no longer valid',
  text: 'It does not belong to your current session. Go back, reload the page, and submit the form again.',
  action: home,
});

const tooManyTriesView = messageView('Try again', 429, {
  title: 'Too many sign-in attempts',
  text: 'Your password was not checked. Try again in a few seconds.',
  action: linkButton('/ui/sign-in', 'Sign in'),
});

export function errorMessages({ errors }: Refusal): string {
  return Object.entries(errors)
    .flatMap(([field, codes]) => codes.map(code => errorMessage(field, code)))
    .join(' ');
}

export function errorView(error: Error, requestId: string): View {
  if (error instanceof Refusal) return refusalView(error);
  return error instanceof TooManyAttempts ? tooManyTriesView : defectView(requestId);
}

function refusalView(refusal: Refusal): View {
  if (refusal.status === 404) return notFoundView;
  const status = refusal.status === 401 ? 403 : refusal.status;
  return messageView('Request refused', status, {
    title: 'The server refused this',
    text: errorMessages(refusal),
    action: home,
  });
}

function defectView(requestId: string): View {
  return messageView('Server error', 500, {
    title: 'Something went wrong on the server',
    text: html`The server has logged the error. Try again. If it happens again, give your administrator this request ID: <code>${requestId}</code>`,
    action: home,
  });
}
