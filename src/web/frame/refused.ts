// The pages for errors: missing, not allowed, forged, suspended, and broken.

import { html } from 'hono/html';
import { Refusal } from '../../domain/refusal.ts';
import { TooManyTries } from '../account/slowdown.ts';
import { emptyState, linkButton } from './components.ts';
import { wordsFor } from './error-text.ts';
import type { View } from './visit.ts';

const home = linkButton('/ui', 'Go to the projects');

export const notFoundView: View = {
  title: 'Not found',
  status: 404,
  body: html`<h1 class="sr">Not found</h1>${emptyState({
    title: 'There is nothing here',
    text: 'It was deleted, never existed, or belongs to someone who has not shared it with you.',
    action: home,
  })}`,
};

export const suspendedView: View = {
  title: 'Account suspended',
  status: 403,
  body: html`<h1 class="sr">Account suspended</h1>${emptyState({
    title: 'Your account is suspended',
    text: 'An administrator has suspended it, so nothing can be shown or changed. Ask your administrator.',
  })}`,
};

export const forgedView: View = {
  title: 'Form refused',
  status: 403,
  body: html`<h1 class="sr">Form refused</h1>${emptyState({
    title: 'This form is no longer valid',
    text: 'It was not sent from a page of your present session. Go back, load the page again, and send it once more.',
    action: home,
  })}`,
};

const tooManyTriesView: View = {
  title: 'Try again',
  status: 429,
  body: html`<h1 class="sr">Try again</h1>${emptyState({
    title: 'Too many people are signing in at this moment',
    text: 'You were not signed in, and your password was not checked. Try again in a few seconds.',
    action: linkButton('/ui/sign-in', 'Sign in'),
  })}`,
};

/** What is wrong, in words. */
export function sentencesOf({ errors }: Refusal): string {
  return Object.entries(errors)
    .flatMap(([field, codes]) => codes.map(code => wordsFor(field, code)))
    .join(' ');
}

export function errorView(error: Error, requestId: string): View {
  if (error instanceof Refusal) return refusalView(error);
  return error instanceof TooManyTries ? tooManyTriesView : defectView(requestId);
}

function refusalView(refusal: Refusal): View {
  if (refusal.status === 404) return notFoundView;
  const status = refusal.status === 401 ? 403 : refusal.status;
  return {
    title: 'Not possible',
    status,
    body: html`<h1 class="sr">Not possible</h1>${emptyState({
      title: 'This is not possible',
      text: sentencesOf(refusal),
      action: home,
    })}`,
  };
}

function defectView(requestId: string): View {
  return {
    title: 'Something broke',
    status: 500,
    body: html`<h1 class="sr">Something broke</h1>${emptyState({
      title: 'Something broke on our side',
      text: html`It has been written to the log. Try again; if it stays, give your administrator this number: <code>${requestId}</code>`,
      action: home,
    })}`,
  };
}
