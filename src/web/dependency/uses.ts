// What uses a dependency, on its page: suites, and the dependencies that relate to it. Attaches it to suites.

import { html } from 'hono/html';
import { suites } from '../../api/suites.ts';
import { refusal } from '../../domain/refusal.ts';
import { countOf } from '../../domain/text/count.ts';
import {
  canCompileAgain,
  listDependents,
  listRelating,
  listSuitesUsing,
} from '../../store/dependency-use.ts';
import { findVisibleProject, listVisibleProjects } from '../../store/projects.ts';
import { listSuiteNames } from '../../store/suites.ts';
import { actionButton, formTo, renderForm, selectField, submitButton } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { type Html, perform } from '../frame/visit.ts';
import { type DependencyVisit, hrefOf, isOwner, linksTo } from './frame.ts';

const OFFERED = { limit: 100, before: undefined };
const SUITES_OFFERED = 500;

/** The suites that the visitor can see, and the number of other ones. */
export function renderUses(visit: DependencyVisit): Html {
  const { services, found, caller } = visit;
  const all = listSuitesUsing(services.db, found.dependency.id);
  const seen = all.filter(({ projectId }) => findVisibleProject(services.db, caller.accountId, projectId));
  const relating = listRelating(services.db, found.dependency.id).filter(
    one => one.shared || one.ownerId === caller.accountId,
  );
  const others = all.length - seen.length;
  if (all.length + relating.length === 0)
    return html`<p class="quiet">No suite uses this dependency yet.</p>${renderAttach(visit, all)}`;
  return html`<ul class="plain-list">${seen.map(
    use =>
      html`<li><a href="/ui/projects/${use.projectId}/suites/${use.suiteId}/settings#dependencies">${use.suiteName}</a> <span class="quiet">of ${use.projectName}</span></li>`,
  )}
${relating.length > 0 ? html`<li>${linksTo(visit, relating)} <span class="quiet">${relating.length === 1 ? 'has' : 'have'} it as a related dependency</span></li>` : ''}
${others > 0 ? html`<li class="quiet">${countOf(others, 'suite')} of other accounts</li>` : ''}</ul>
${isOwner(visit) ? renderOutdatedDependents(visit) : ''}
${renderAttach(visit, all)}`;
}

/** Offers the suites that can use it and do not yet. */
function renderAttach(visit: DependencyVisit, uses: readonly { suiteId: bigint }[]): Html | string {
  const { services, found, caller } = visit;
  const using = new Set(uses.map(({ suiteId }) => suiteId));
  const offered = listVisibleProjects(services.db, caller.accountId, OFFERED)
    .filter(({ ownerId }) => found.dependency.shared || ownerId === found.dependency.ownerId)
    .flatMap(project =>
      listSuiteNames(services.db, project.id).map(suite => ({
        id: suite.id,
        value: `${project.id}/${suite.id}`,
        label: `${suite.name} of ${project.name}`,
      })),
    )
    .filter(({ id }) => !using.has(id))
    .slice(0, SUITES_OFFERED);
  if (offered.length === 0)
    return uses.length > 0
      ? ''
      : html`<p class="hint">Create a suite, then attach the dependency to it here. <a href="/ui/projects">Go to projects</a></p>`;
  const form = formTo(visit, hrefOf(visit, '/attach'));
  return renderForm(form, {
    className: 'row later',
    fields: selectField(form, {
      name: 'suite',
      label: 'Attach to a suite',
      required: true,
      choices: [{ value: '', label: 'Choose one' }, ...offered],
    }),
    submit: submitButton('Attach', 'plain'),
  });
}

export async function attachToSuite(visit: DependencyVisit, suite: string): Promise<Response> {
  const [project_id = '', suite_id = ''] = suite.split('/');
  if (suite_id === '') throw refusal('is_blank', 'suite');
  const { dependency } = visit.found;
  await perform(visit, suites.attachDependency, {
    params: { project_id, suite_id },
    sent: new Map([['dependency_id', dependency.id.toString()]]),
  });
  return respondRedirect(hrefOf(visit), {
    message: 'Dependency attached. The next build of the suite uses it.',
  });
}

/** The owner's dependencies that relate to it and that another compile would change. */
function renderOutdatedDependents(visit: DependencyVisit): Html | string {
  const { dependency } = visit.found;
  const { db } = visit.services;
  const outdated = listDependents(db, dependency.id).filter(
    one => one.ownerId === dependency.ownerId && canCompileAgain(db, one),
  );
  if (outdated.length === 0) return '';
  return html`<p>${linksTo(visit, outdated)} ${outdated.length === 1 ? 'is' : 'are'} not compiled with its current version.</p>
${actionButton(formTo(visit, hrefOf(visit, '/compile_dependents')), 'Compile dependents')}`;
}
