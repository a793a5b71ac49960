// The dependencies of a suite, in the order they were attached. If two contain the same path, the earlier one wins.

import { html } from 'hono/html';
import { suites } from '../../api/suites.ts';
import { marketplaceState } from '../../domain/dependency.ts';
import { type Dependency, listOwnDependencies, listSharedDependencies } from '../../store/dependencies.ts';
import type { UsedDependency } from '../../store/dependency-use.ts';
import { listProjectDependencies, listSuiteDependencies } from '../../store/suites.ts';
import { relativeTime, table } from '../frame/components.ts';
import { actionButton, formTo, renderForm, selectField, submitButton } from '../frame/form.ts';
import { action, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import type { Html, View } from '../frame/visit.ts';
import { isOwner, type SuiteVisit, suitePath } from '../project/frame.ts';

const PATH = '/ui/projects/:project_id/suites/:suite_id/dependencies';
const OFFERED = { limit: 500, before: undefined };

export const suiteDependencyPages = (showForm: (visit: SuiteVisit) => View): Route[] => [
  action(PATH, suites.attachDependency, {
    showForm,
    done: (visit, { name }) => ({
      to: suitePath(visit, '/settings#dependencies'),
      message: `${name} attached.`,
    }),
  }),
  action(`${PATH}/:dependency_id/delete`, suites.detachDependency, {
    showForm,
    done: visit => ({
      to: suitePath(visit, '/settings#dependencies'),
      message: `${visit.found.dependency.name} detached.`,
    }),
  }),
  action(`${PATH}/:dependency_id/last`, suites.putDependencyLast, {
    showForm,
    done: visit => ({
      to: suitePath(visit, '/settings#dependencies'),
      message: `${visit.found.dependency.name} moved to the end.`,
    }),
  }),
];

export function renderSuiteDependencies(visit: SuiteVisit): Html {
  const attached = listSuiteDependencies(visit.services.db, visit.found.suite.id);
  const attachedIds = new Set(attached.map(({ id }) => id));
  const offered = offeredTo(visit).filter(({ id }) => !attachedIds.has(id));
  return html`${
    attached.length === 0
      ? html`<p class="quiet">No dependencies attached. Attach what the command needs and the image does not have. It is mounted read-only, with its programs in the PATH.</p>`
      : table({
          caption: 'Dependencies',
          columns: ['Dependency', 'State', 'Prefix', 'Actions'],
          rows: attached.map((dependency, at) => ({
            cells: dependencyCells(visit, dependency, at === attached.length - 1),
          })),
        })
  }
${offered.length === 0 ? html`<p class="hint">There are no other dependencies to attach. ${isOwner(visit) ? html`<a href="/ui/dependencies">Go to dependencies</a>` : ''}</p>` : renderAttach(visit, offered)}`;
}

function dependencyCells(visit: SuiteVisit, dependency: UsedDependency, isLast: boolean): (Html | string)[] {
  const path = suitePath(visit, `/dependencies/${dependency.id}`);
  const mayOpen = dependency.ownerId === visit.caller.accountId || dependency.shared;
  return [
    mayOpen
      ? html`<a class="name" href="/ui/dependencies/${dependency.id}">${dependency.name}</a>`
      : dependency.name,
    dependency.kept
      ? html`<span class="quiet">No longer shared (${relativeTime(dependency.kept.createdAt, visit.services.db.now())}): the suite keeps the version that it had</span>`
      : stateBadge(marketplaceState(dependency)),
    html`<code>${dependency.prefix}</code>`,
    html`<div class="row">${isLast ? '' : actionButton(formTo(visit, `${path}/last`), 'Move to the end')}${actionButton(formTo(visit, `${path}/delete`), 'Detach', { tone: 'danger', confirm: dependency.kept ? `Detach ${dependency.name}? It is no longer shared, so you cannot attach it again.` : `Detach ${dependency.name}?`, yes: 'Detach', no: 'Keep attached' })}</div>`,
  ];
}

function renderAttach(visit: SuiteVisit, offered: readonly Dependency[]): Html {
  const attach = formTo(visit, suitePath(visit, '/dependencies'));
  return renderForm(attach, {
    fields: selectField(attach, {
      name: 'dependency_id',
      label: 'Attach a dependency',
      required: true,
      choices: [
        { value: '', label: 'Choose one' },
        ...offered.map(({ id, name, prefix }) => ({ value: id.toString(), label: `${name} (${prefix})` })),
      ],
    }),
    submit: submitButton('Attach', 'plain'),
  });
}

/** The owner's and the shared dependencies. Of the owner's, a collaborator sees only those that the project already uses. */
function offeredTo(visit: SuiteVisit): Dependency[] {
  const { db } = visit.services;
  const { project } = visit.found;
  const own = isOwner(visit)
    ? listOwnDependencies(db, project.ownerId, OFFERED)
    : listProjectDependencies(db, project.id).filter(({ ownerId }) => ownerId === project.ownerId);
  const known = new Map(
    [...own, ...listSharedDependencies(db, project.ownerId, OFFERED)].map(one => [one.id, one]),
  );
  return [...known.values()];
}
