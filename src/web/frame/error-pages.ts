// The error pages: not found, suspended account, invalid form, refused request, and defect of the server.

import { html } from 'hono/html';
import { Refusal } from '../../domain/refusal.ts';
import { TooManyAttempts } from '../account/throttle.ts';
import { linkButton, messageView } from './components.ts';
import { errorMessage } from './error-text.ts';
import type { View } from './visit.ts';

const home = linkButton('/ui', 'Go to the projects');

export const notFoundView = messageView('Not found', 404, {
  title: 'There is nothing here',
  text: 'It was deleted, never existed, or belongs to someone who has not shared it with you.',
  action: home,
});

export const suspendedView = messageView('Account suspended', 403, {
  title: 'Your account is suspended',
  text: 'An administrator has suspended it, so nothing can be shown or changed. Ask your administrator.',
});

export const invalidFormView = messageView('Form refused', 403, {
  title: 'This form is no longer valid',
  text: 'It was not sent from a page of your present session. Go back, load the page again, and send it once more.',
  action: home,
});

const tooManyTriesView = messageView('Try again', 429, {
  title: 'Too many people are signing in at this moment',
  text: 'You were not signed in, and your password was not checked. Try again in a few seconds.',
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
  return messageView('Not possible', status, {
    title: 'This is not possible',
    text: errorMessages(refusal),
    action: home,
  });
}

function defectView(requestId: string): View {
  return messageView('Something broke', 500, {
    title: 'Something broke on our side',
    text: html`It has been written to the log. Try again; if it stays, give your administrator this number: <code>${requestId}</code>`,
    action: home,
  });
}
