// What the pages of one dependency share: their addresses, and who owns it.

import { html } from 'hono/html';
import { refusal } from '../../domain/refusal.ts';
import type { Dependency } from '../../store/dependencies.ts';
import type { Html, Visit } from '../frame/visit.ts';

export type DependencyVisit = Visit<'dependency'>;

export const PATH = '/ui/dependencies/:dependency_id';

export const hrefOf = ({ found }: DependencyVisit, rest = '') =>
  `/ui/dependencies/${found.dependency.id}${rest}`;

export const isOwner = ({ caller, found }: DependencyVisit) =>
  caller.kind === 'user' && found.dependency.ownerId === caller.accountId;

/** Only the owner may see logs and edit. */
export function requireOwner(visit: DependencyVisit): void {
  if (!isOwner(visit)) throw refusal('not_found');
}

/** "one, two, and three" */
export const listing = (names: readonly string[]) => new Intl.ListFormat('en').format(names);

/** Names of dependencies, linked if the visitor can see them. */
export function linksTo({ caller }: DependencyVisit, some: readonly Dependency[]): Html {
  return html`${some.map(
    (one, at) =>
      html`${at > 0 ? ', ' : ''}${one.shared || one.ownerId === caller.accountId ? html`<a href="/ui/dependencies/${one.id}">${one.name}</a>` : one.name}`,
  )}`;
}
