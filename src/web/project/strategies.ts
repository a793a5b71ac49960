// Deploy strategies: the repository and branch that commits are pushed to, manually or automatically when they pass.

import { html } from 'hono/html';
import { deploys } from '../../api/deploys.ts';
import { type DeployStrategy, listStrategies } from '../../store/deploys.ts';
import { linkButton, table } from '../frame/components.ts';
import {
  actionButton,
  checkBox,
  type Form,
  formTo,
  renderForm,
  submitButton,
  textField,
} from '../frame/form.ts';
import { action, page, type Route } from '../frame/route.ts';
import type { Html, View, Visit } from '../frame/visit.ts';
import { isOwner, type ProjectVisit, projectPath, projectView } from './frame.ts';

const PATH = '/ui/projects/:project_id/deploy_strategies';

export const strategyPages: Route[] = [
  page(`${PATH}/new`, showNewStrategy),
  action(`${PATH}/new`, deploys.createStrategy, {
    showForm: showNewStrategy,
    done: (visit, { name }) => ({
      to: projectPath(visit, '/deploys'),
      message: `Deploy strategy ${name} created. The project’s key needs write access to its repository.`,
    }),
  }),
  page(`${PATH}/:deploy_strategy_id`, showStrategy),
  action(`${PATH}/:deploy_strategy_id`, deploys.updateStrategy, {
    showForm: showStrategy,
    done: (visit, { name }) => ({
      to: projectPath(visit, '/deploys'),
      message: `Deploy strategy ${name} saved.`,
    }),
  }),
  action(`${PATH}/:deploy_strategy_id/delete`, deploys.deleteStrategy, {
    showForm: showStrategy,
    done: visit => ({
      to: projectPath(visit, '/deploys'),
      message: `Deploy strategy ${visit.found.deployStrategy.name} deleted.`,
    }),
  }),
];

export function renderStrategies(visit: ProjectVisit): Html {
  const strategies = listStrategies(visit.services.db, visit.found.project.id, {
    limit: 100,
    before: undefined,
  });
  const create = linkButton(projectPath(visit, '/deploy_strategies/new'), 'New deploy strategy');
  return html`<div class="section-head"><h2 id="strategies-head">Deploy strategies</h2>${strategies.length === 0 ? '' : create}</div>
${table({
  caption: 'Deploy strategies',
  columns: ['Name', 'Pushes', 'Actions'],
  rows: strategies.map(strategy => ({ cells: strategyCells(visit, strategy) })),
  empty: {
    title: 'No deploy strategies yet',
    text: 'A deploy strategy names the repository and the branch that commits are pushed to.',
    action: create,
  },
})}`;
}

function strategyCells(visit: ProjectVisit, strategy: DeployStrategy): Html[] {
  const path = projectPath(visit, `/deploy_strategies/${strategy.id}`);
  return [
    html`<a class="name" href="${path}">${strategy.name}</a>${strategy.automatic ? html` <span class="tag">automatic</span>` : ''}`,
    html`<div><code>${strategy.localBranch}</code> to <code>${strategy.remoteBranch}</code><div class="second"><code>${strategy.repositoryUrl}</code></div></div>`,
    html`<div class="row"><a class="button plain" href="${path}">Edit<span class="sr"> ${strategy.name}</span></a>${isOwner(visit) ? deleteButton(visit, strategy) : ''}</div>`,
  ];
}

const deleteButton = (visit: ProjectVisit, { id, name }: DeployStrategy) =>
  actionButton(formTo(visit, projectPath(visit, `/deploy_strategies/${id}/delete`)), 'Delete', {
    tone: 'danger',
    confirm: `Delete the deploy strategy ${name}? Its deploys stay visible.`,
    yes: 'Delete strategy',
    no: 'Keep strategy',
  });

const strategyFields = (form: Form) =>
  html`<input type="hidden" name="strategy_type" value="git">
${textField(form, { name: 'name', label: 'Name', required: true, placeholder: 'Production' })}
${textField(form, { name: 'options[repository_url]', label: 'Repository URL', required: true, code: true, placeholder: 'git@git.example.org:team/live.git', hint: 'The project’s key needs write access there.' })}
<div class="row">${textField(form, { name: 'options[local_branch]', label: 'Local branch', required: true, code: true, hint: 'Must contain the commit.' })}
${textField(form, { name: 'options[remote_branch]', label: 'Remote branch', required: true, code: true, hint: 'The branch that commits are pushed to. Assay never force-pushes.' })}</div>
${checkBox(form, { name: 'options[automatic]', label: 'Automatic', hint: 'Deploy each commit of the local branch that passes.' })}`;

function showNewStrategy(visit: ProjectVisit): View {
  const create = formTo(visit, projectPath(visit, '/deploy_strategies/new'), {
    'options[local_branch]': 'main',
    'options[remote_branch]': 'main',
  });
  return projectView(visit, {
    tab: 'deploys',
    subpage: { heading: 'New deploy strategy' },
    body: renderForm(create, {
      fields: strategyFields(create),
      submit: html`${submitButton('Create deploy strategy')} ${linkButton(projectPath(visit, '/deploys'), 'Back')}`,
    }),
  });
}

function showStrategy(visit: Visit<'project' | 'deployStrategy'>): View {
  const { deployStrategy: strategy } = visit.found;
  const change = formTo(visit, projectPath(visit, `/deploy_strategies/${strategy.id}`), {
    name: strategy.name,
    'options[repository_url]': strategy.repositoryUrl,
    'options[local_branch]': strategy.localBranch,
    'options[remote_branch]': strategy.remoteBranch,
    'options[automatic]': String(strategy.automatic),
  });
  return projectView(visit, {
    tab: 'deploys',
    subpage: { heading: strategy.name },
    body: renderForm(change, {
      fields: strategyFields(change),
      submit: html`${submitButton('Save deploy strategy')} ${linkButton(projectPath(visit, '/deploys'), 'Back')}`,
    }),
  });
}
