// The deploys of a project: the list, a form to start one, and a page with the log of each.

import { html } from 'hono/html';
import { deploys } from '../../api/deploys.ts';
import { UNFINISHED_DEPLOYS } from '../../domain/deploy.ts';
import { parseId } from '../../domain/id.ts';
import type { Commit } from '../../store/builds.ts';
import { type Deploy, listDeploys, listStrategies } from '../../store/deploys.ts';
import { type CommitHead, findCommitHeads } from '../../store/overview.ts';
import {
  formatDuration,
  linkButton,
  olderLink,
  propertyList,
  relativeTime,
  table,
} from '../frame/components.ts';
import { actionButton, formTo, renderForm, selectField, submitButton } from '../frame/form.ts';
import { action, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, perform, type View, type Visit } from '../frame/visit.ts';
import { commitChoices, type ProjectVisit, projectPath, projectView, subjectOf } from './frame.ts';
import { respondRawLog } from './log-view.ts';
import { renderStrategies } from './strategies.ts';

const PATH = '/ui/projects/:project_id/deploys';
const DEPLOYS_PER_PAGE = 25;
const LOG_SHOWN = 200_000;

export const deployPages: Route[] = [
  page(PATH, showDeploys),
  action(PATH, deploys.create, {
    showForm: showDeploys,
    done: (visit, deploy) => ({
      to: projectPath(visit, `/deploys/${deploy.id_str}`),
      message: 'Deploy started.',
    }),
  }),
  page(`${PATH}/:deploy_id`, showDeploy),
  page(`${PATH}/:deploy_id/log`, visit =>
    respondRawLog(visit, deploys.log, `deploy-${visit.found.deploy.id}.log`),
  ),
  action(`${PATH}/:deploy_id/cancel`, deploys.cancel, {
    showForm: showDeploys,
    done: visit => ({ to: projectPath(visit, '/deploys') }),
  }),
];

function showDeploys(visit: ProjectVisit): View {
  const { db } = visit.services;
  const { project } = visit.found;
  const before = parseId(visit.url.searchParams.get('before') ?? '');
  const rows = listDeploys(db, project.id, { limit: DEPLOYS_PER_PAGE, before });
  const deploys = rows.slice(0, DEPLOYS_PER_PAGE);
  const commits = findCommitHeads(
    db,
    deploys.map(({ commitId }) => commitId),
  );
  const next = rows.length > DEPLOYS_PER_PAGE ? deploys.at(-1)?.id : undefined;
  return projectView(visit, {
    tab: 'deploys',
    live: projectPath(visit, `/deploys${visit.request.method === 'GET' ? visit.url.search : ''}`),
    body: html`<section class="panel" aria-labelledby="deploy-head"><h2 id="deploy-head">Deploy</h2>${renderDeployForm(visit)}</section>
<section id="deploys" data-live aria-labelledby="deploys-head"><h2 id="deploys-head">Deploys</h2>
${table({
  caption: 'Deploys',
  columns: ['Commit', 'Strategy', 'State', 'When', 'Actions'],
  rows: deploys.map(deploy => ({ cells: deployCells(visit, deploy, commits.get(deploy.commitId)) })),
  empty: {
    title: 'No deploys yet',
    text: 'A deploy pushes a commit to a branch of another repository. A deploy strategy sets the target, and whether commits that pass are deployed automatically.',
  },
})}
${olderLink(visit.url, next, 'Older deploys')}</section>
<section class="spaced" aria-labelledby="strategies-head">${renderStrategies(visit)}</section>`,
  });
}

function deployCells(visit: ProjectVisit, deploy: Deploy, commit: CommitHead | undefined): (Html | string)[] {
  const path = projectPath(visit, `/deploys/${deploy.id}`);
  return [
    html`<a class="subject" href="${projectPath(visit, `/commits/${deploy.commitId}`)}">${commit ? subjectOf(commit) : ''}</a><div class="second"><code>${deploy.commitRef.slice(0, 10)}</code></div>`,
    html`<div>${deploy.strategyName}<div class="second"><code>${deploy.remoteBranch}</code></div></div>`,
    html`<div>${stateBadge(deploy.state)}${deploy.error ? html`<div class="why">${deploy.error}</div>` : ''}</div>`,
    html`<div>${relativeTime(deploy.createdAt)}<div class="second">${deploy.createdBy}</div></div>`,
    html`<div class="row"><a class="button plain" href="${path}">Log</a>${renderCancel(visit, deploy)}</div>`,
  ];
}

function renderCancel(visit: ProjectVisit, { id, state, cancelBecause }: Deploy): Html | string {
  if (!UNFINISHED_DEPLOYS.includes(state)) return '';
  if (cancelBecause !== null) return html`<span class="quiet">Canceling</span>`;
  return actionButton(formTo(visit, projectPath(visit, `/deploys/${id}/cancel`)), 'Cancel', {
    confirm: 'Stop this deploy? A push that has already arrived is not undone.',
    yes: 'Stop deploy',
    no: 'Keep deploying',
  });
}

/** Deploys `commit`, or one of the newest commits that the user chooses. */
export function renderDeployForm(visit: ProjectVisit, commit?: Commit): Html {
  const { db } = visit.services;
  const { project } = visit.found;
  const strategies = listStrategies(db, project.id, { limit: 100, before: undefined });
  const create = linkButton(projectPath(visit, '/deploy_strategies/new'), 'New deploy strategy');
  if (strategies.length === 0)
    return html`<p class="quiet">No deploy strategies yet. A deploy strategy names the repository and the branch that commits are pushed to.</p>${create}`;
  const commits = commit ? [] : commitChoices(visit);
  if (!commit && commits.length === 0)
    return html`<p class="quiet">No commits yet. Start a build first: it fetches the commit.</p>`;
  const deploy = formTo(visit, projectPath(visit, '/deploys'), {
    commit_id: commit?.id.toString() ?? '',
  });
  return renderForm(deploy, {
    className: commit ? 'form' : 'form wide',
    fields: html`<div class="row">${selectField(deploy, {
      name: 'deploy_strategy_id',
      label: 'Strategy',
      required: true,
      choices: strategies.map(({ id, name, remoteBranch, repositoryUrl }) => ({
        value: id.toString(),
        label: `${name} (${remoteBranch} of ${repositoryUrl})`,
      })),
    })}
${
  commit
    ? html`<input type="hidden" name="commit_id" value="${commit.id}">`
    : selectField(deploy, {
        name: 'commit_id',
        label: 'Commit',
        required: true,
        choices: commits,
      })
}</div>`,
    submit: submitButton('Deploy'),
  });
}

async function showDeploy(visit: Visit<'project' | 'deploy'>): Promise<View> {
  const { deploy, project } = visit.found;
  const here = projectPath(visit, `/deploys/${deploy.id}`);
  const commit = findCommitHeads(visit.services.db, [deploy.commitId]).get(deploy.commitId);
  const answer = await perform(visit, deploys.log);
  const log = (await answer.text()).slice(-LOG_SHOWN);
  const took =
    deploy.startedAt !== null && deploy.finishedAt !== null
      ? formatDuration(deploy.finishedAt - deploy.startedAt)
      : '–';
  return projectView(visit, {
    tab: 'deploys',
    live: here,
    subpage: {
      heading: `Deploy to ${deploy.strategyName}`,
      state: deploy.state,
      subtitle: html`${stateBadge(deploy.state)} ${relativeTime(deploy.createdAt)} by ${deploy.createdBy}`,
    },
    body: html`<div id="deploy" data-live>
${deploy.error ? html`<p class="flash failed">${deploy.error}</p>` : ''}
${renderCancel(visit, deploy)}
<section class="panel" aria-labelledby="details-head"><h2 id="details-head">Details</h2>${propertyList([
      [
        'Commit',
        html`<a href="/ui/projects/${project.id}/commits/${deploy.commitId}">${commit ? subjectOf(commit) : deploy.commitRef}</a> <code>${deploy.commitRef.slice(0, 10)}</code>`,
      ],
      ['From', html`<code>${deploy.localBranch}</code>`],
      ['To', html`<code>${deploy.remoteBranch}</code> of <code>${deploy.repositoryUrl}</code>`],
      ['Duration', took],
    ])}</section>
<section aria-labelledby="log-head"><div class="section-head"><h2 id="log-head">Log</h2>${linkButton(`${here}/log`, 'Raw log')}</div>
${log === '' ? html`<p class="quiet">${deploy.finishedAt === null ? 'No output yet.' : 'The deploy printed nothing.'}</p>` : html`<pre class="output" tabindex="0">${log}</pre>`}
</section></div>`,
  });
}
