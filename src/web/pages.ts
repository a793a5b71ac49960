// The pages for people, under /ui: which addresses there are.

import type { Hono } from 'hono';
import type { Endpoint } from '../api/endpoint.ts';
import type { Bindings } from '../api/router.ts';
import { renderApiReference } from './api-reference.ts';
import { respondPage, respondStyle } from './layout.ts';

export function mountPages(router: Hono<Bindings>, endpoints: readonly Endpoint[]): void {
  router.get('/', context => context.redirect('/ui', 302));
  router.get('/ui', context => context.redirect('/ui/api', 302));
  router.get('/ui/style.css', () => respondStyle());
  router.get('/ui/api', () => respondPage('API', renderApiReference(endpoints)));
}
