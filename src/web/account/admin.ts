// Administration: the health of the appliance, the queue, unfinished deploys, and accounts.

import { html } from 'hono/html';
import type { SentFields } from '../../api/http/body.ts';
import { parseAccountChange, parseNewAccount } from '../../domain/registration.ts';
import { countOf } from '../../domain/text/count.ts';
import { type Account, findAccount, listAccounts } from '../../store/accounts.ts';
import { countByState, sumArtifacts } from '../../store/counts.ts';
import { findStoredValue } from '../../store/database/stored-values.ts';
import { findVisibleDependency } from '../../store/dependencies.ts';
import { cancelDeploy, findAnyDeploy, listUnfinishedDeploys } from '../../store/deploys.ts';
import { findVisibleProject } from '../../store/projects.ts';
import { listUnfinishedBuilds, listUnfinishedCompiles } from '../../store/queue.ts';
import { changeAccount, registerAccount, resetAccount, type Secrets } from '../../store/registration.ts';
import {
  copyText,
  filterBox,
  formatSize,
  linkButton,
  pageHead,
  propertyList,
  relativeTime,
  table,
} from '../frame/components.ts';
import {
  actionButton,
  checkBox,
  formTo,
  renderForm,
  selectField,
  submitButton,
  textField,
} from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { renderChanges, respondChanges } from '../frame/page-stream.ts';
import { form, orShowAgain, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { getByParam, type Html, type View, type Visit } from '../frame/visit.ts';
import { forAdministrators, renderCacheSum } from './admin-caches.ts';
import { renderSlots } from './admin-nodes.ts';
import { textOf } from './sign-in.ts';

const PATH = '/ui/admin';
const QUEUE_SHOWN = 50;

export const adminPages: Route[] = [
  page(PATH, visit => forAdministrators(visit, showAdministration)),
  page(`${PATH}/stream`, visit => forAdministrators(visit, followQueue)),
  form(`${PATH}/accounts`, (visit, sent) => forAdministrators(visit, () => addAccount(visit, sent))),
  page(`${PATH}/accounts/:account`, visit => forAdministrators(visit, showAccount)),
  form(`${PATH}/accounts/:account`, (visit, sent) =>
    forAdministrators(visit, () => updateAccount(visit, sent)),
  ),
  form(`${PATH}/accounts/:account/reset`, visit => forAdministrators(visit, resetSecrets)),
  form(`${PATH}/deploys/:deploy/cancel`, visit => forAdministrators(visit, cancelUnfinishedDeploy)),
];

function showAdministration(visit: Visit): View {
  return {
    title: 'Administration',
    section: 'admin',
    scripts: ['project.js'],
    body: html`${renderChanges(visit, `${PATH}/stream`, PATH)}${pageHead('Administration')}
<section class="panel" id="vitals" data-live aria-labelledby="appliance"><h2 id="appliance">Appliance</h2>${renderVitals(visit)}</section>
<section id="waiting" data-live aria-labelledby="queue"><h2 id="queue">Queue</h2>${renderQueue(visit)}</section>
<section id="pushing" data-live aria-labelledby="deploys"><h2 id="deploys">Deploys</h2>${renderDeploys(visit)}</section>
<section aria-labelledby="accounts"><h2 id="accounts">Accounts</h2>${renderAccounts(visit)}</section>
<section class="panel" aria-labelledby="new-account"><h2 id="new-account">New account</h2>${renderNewAccount(visit)}</section>`,
  };
}

function followQueue(visit: Visit): Response {
  return respondChanges(visit, { topics: ['queue', 'deliveries'], maySee: ({ admin }) => admin });
}

function renderVitals(visit: Visit): Html {
  const { services } = visit;
  const { freeDiskBytes, minFreeDiskBytes, dockerUnavailable, image } = services.vitals();
  const counts = countByState(services.db);
  const artifacts = sumArtifacts(services.db);
  const backupAt = findStoredValue(services.db, 'last_backup_at');
  const low = freeDiskBytes < minFreeDiskBytes;
  return propertyList([
    ['Version', services.version],
    [
      'Docker',
      dockerUnavailable === undefined
        ? stateBadge('available')
        : stateBadge('unavailable', dockerUnavailable),
    ],
    ['Default image', html`<code>${image}</code>`],
    ['Slots', renderSlots(visit)],
    [
      'Disk',
      low
        ? stateBadge(
            'low',
            `${formatSize(freeDiskBytes)} free; new builds and compiles need ${formatSize(minFreeDiskBytes)}`,
          )
        : `${formatSize(freeDiskBytes)} free`,
    ],
    ['Caches', renderCacheSum(visit)],
    [
      'Artifacts',
      `${formatSize(artifacts.sizeBytes)} of ${countOf(artifacts.builds, 'build')}, before compression`,
    ],
    ['Database', formatSize(counts.databaseBytes)],
    ['Pending webhooks', String(counts.pendingDeliveries)],
    [
      'Last backup',
      backupAt === undefined
        ? html`Never. Run <code>assay backup FILE</code>`
        : relativeTime(Number(backupAt)),
    ],
  ]);
}

/** An administrator can open only the projects that they own or that are shared with them. Others are plain text. */
function linkInProject(
  { services: { db }, caller }: Visit,
  projectId: bigint,
  rest: string,
  label: string,
): Html | string {
  return findVisibleProject(db, caller.accountId, projectId)
    ? html`<a href="/ui/projects/${projectId}${rest}">${label}</a>`
    : label;
}

/** Builds and compiles that run or wait. */
function renderQueue(visit: Visit): Html {
  const { services, caller } = visit;
  const { db } = services;
  const reasonOf = (waiting: { position: number; reason: string } | undefined) =>
    waiting ? `Number ${waiting.position} in the queue: ${waiting.reason}` : '';
  const nodeOf = (node: string | null) => (node === null ? '' : html`<div class="second">on ${node}</div>`);
  const compiles = listUnfinishedCompiles(db, QUEUE_SHOWN).map(({ dependency, ownerEmail }) => [
    findVisibleDependency(db, caller.accountId, dependency.id)
      ? html`<a href="/ui/dependencies/${dependency.id}">Compile of ${dependency.name}</a>`
      : `Compile of ${dependency.name}`,
    html`<a href="${PATH}/accounts/${dependency.ownerId}">${ownerEmail}</a>`,
    html`${stateBadge(dependency.compileState)}${nodeOf(dependency.node)}`,
    reasonOf(services.waitingCompile(dependency)),
    relativeTime(
      (dependency.compileState === 'compiling' && dependency.startedAt) ||
        (dependency.enqueuedAt ?? dependency.createdAt),
    ),
  ]);
  const builds = listUnfinishedBuilds(db, QUEUE_SHOWN).map(({ build, projectName }) => [
    linkInProject(visit, build.projectId, `/builds/${build.id}`, build.suiteName),
    linkInProject(visit, build.projectId, '', projectName),
    html`${stateBadge(build.buildState)}${nodeOf(build.node)}`,
    reasonOf(services.waiting(build)),
    relativeTime(build.startedAt ?? build.createdAt),
  ]);
  return table({
    caption: 'Queue',
    columns: ['Job', 'Project or account', 'State', 'Reason for waiting', 'Since'],
    rows: [...compiles, ...builds].map(cells => ({ cells })),
    empty: {
      title: 'The queue is empty',
      text: 'Builds and compiles of all accounts appear here while they wait or run.',
    },
  });
}

/** An administrator can cancel any deploy here, for example when its remote hangs. */
function renderDeploys(visit: Visit): Html {
  const rows = listUnfinishedDeploys(visit.services.db, QUEUE_SHOWN).map(({ deploy, projectName }) => [
    html`${linkInProject(visit, deploy.projectId, `/deploys/${deploy.id}`, deploy.strategyName)}<div class="second"><code>${deploy.remoteBranch}</code> of <code>${deploy.repositoryUrl}</code></div>`,
    linkInProject(visit, deploy.projectId, '', projectName),
    stateBadge(deploy.state),
    relativeTime(deploy.startedAt ?? deploy.createdAt),
    deploy.cancelBecause === null
      ? actionButton(formTo(visit, `${PATH}/deploys/${deploy.id}/cancel`), 'Cancel', {
          confirm: `Stop the deploy of ${projectName}? A push that has already arrived is not undone.`,
          yes: 'Stop deploy',
          no: 'Keep deploying',
        })
      : html`<span class="quiet">Canceling</span>`,
  ]);
  if (rows.length === 0) return html`<p class="quiet">No deploy is waiting or running.</p>`;
  return table({
    caption: 'Unfinished deploys',
    columns: ['Strategy', 'Project', 'State', 'Since', 'Actions'],
    rows: rows.map(cells => ({ cells })),
  });
}

function cancelUnfinishedDeploy(visit: Visit): Response {
  const { db } = visit.services;
  const deploy = getByParam(visit, 'deploy', id => findAnyDeploy(db, id));
  cancelDeploy(db, deploy, `by ${visit.account.email}`);
  return respondRedirect(PATH, { message: 'The deploy is being canceled.' });
}

function renderAccounts({ services, url }: Visit): Html {
  const query = (url.searchParams.get('q') ?? '').toLowerCase();
  const accounts = listAccounts(services.db).filter(({ email }) => email.includes(query));
  return html`${filterBox('account-list', 'Filter accounts', query)}${table({
    id: 'account-list',
    caption: 'Accounts',
    columns: ['Email', 'Kind', 'Standing', 'Since'],
    rows: accounts.map(account => ({
      filterText: account.email,
      cells: [
        html`<a href="${PATH}/accounts/${account.id}">${account.email}</a>${account.admin ? html` <span class="tag">administrator</span>` : ''}`,
        account.kind,
        formatStanding(account),
        relativeTime(account.createdAt),
      ],
    })),
  })}`;
}

function formatStanding({ standing, trialEndsAt }: Account): string {
  const label = { active: 'active', suspended: 'suspended', payment_required: 'payment required' }[standing];
  if (standing !== 'active' || trialEndsAt === null) return label;
  const day = new Date(trialEndsAt).toISOString().slice(0, 10);
  return trialEndsAt <= Date.now() ? `trial ended ${day}` : `trial until ${day}`;
}

const kindChoices = [
  { value: 'user', label: 'User: owns projects and dependencies' },
  { value: 'collaborator', label: 'Collaborator: works on other people’s projects' },
];

function renderNewAccount(visit: Visit): Html {
  const create = formTo(visit, `${PATH}/accounts`, { kind: 'user' });
  return renderForm(create, {
    fields: html`${textField(create, { name: 'email', label: 'Email', type: 'email', required: true })}
${selectField(create, { name: 'kind', label: 'Kind', required: true, choices: kindChoices })}
${checkBox(create, { name: 'admin', label: 'Administrator' })}`,
    submit: submitButton('Create account'),
  });
}

function addAccount(visit: Visit, sent: SentFields): Promise<View | Response> {
  return orShowAgain(visit, sent, showAdministration, async () => {
    const parsed = parseNewAccount({
      email: textOf(sent, 'email'),
      kind: textOf(sent, 'kind'),
      admin: textOf(sent, 'admin') === 'true',
    });
    const { account, ...secrets } = await registerAccount(visit.services.db, parsed);
    return secretsView(account.email, secrets);
  });
}

function secretsView(email: string, { password, apiKey }: Secrets): View {
  return {
    title: 'Account',
    section: 'admin',
    body: html`${pageHead(`Credentials of ${email}`, { parent: { href: PATH, label: 'Administration' } })}
<div class="panel"><p class="lead">Send these to the user now. They are not shown again.</p>
${propertyList([
  ['Password', copyText(password, 'Copy password')],
  ['API key', copyText(apiKey, 'Copy key')],
])}</div><p>${linkButton(PATH, 'Done', 'primary')}</p>`,
  };
}

const getAccount = (visit: Visit) => getByParam(visit, 'account', id => findAccount(visit.services.db, id));

function showAccount(visit: Visit): View {
  const account = getAccount(visit);
  const here = `${PATH}/accounts/${account.id}`;
  const change = formTo(visit, here, {
    standing: account.standing,
    kind: account.kind,
    admin: String(account.admin),
    trial_ends: account.trialEndsAt === null ? '' : new Date(account.trialEndsAt).toISOString().slice(0, 10),
  });
  return {
    title: account.email,
    section: 'admin',
    body: html`${pageHead(account.email, { parent: { href: PATH, label: 'Administration' } })}
${renderForm(change, {
  fields: html`${selectField(change, {
    name: 'standing',
    label: 'Standing',
    required: true,
    choices: [
      { value: 'active', label: 'Active' },
      { value: 'suspended', label: 'Suspended: no access' },
      { value: 'payment_required', label: 'Payment required: can only collaborate' },
    ],
  })}
${textField(change, { name: 'trial_ends', label: 'Trial ends', placeholder: '2027-01-31', hint: 'From this day on, payment is required. Leave it empty for an account without a trial.' })}
${selectField(change, { name: 'kind', label: 'Kind', required: true, choices: kindChoices })}
${checkBox(change, { name: 'admin', label: 'Administrator' })}`,
  submit: submitButton('Save'),
})}
<section class="panel danger" aria-labelledby="reset"><h2 id="reset">Reset password and API key</h2>
<p>The old password and key stop working at once. All sign-in links, sessions and OAuth tokens of the account are revoked.</p>
${actionButton(formTo(visit, `${here}/reset`), 'Reset', { tone: 'danger', confirm: `Reset the password and the API key of ${account.email}?`, yes: 'Reset both', no: 'Keep both' })}
</section>`,
  };
}

function updateAccount(visit: Visit, sent: SentFields): Promise<View | Response> {
  const { db } = visit.services;
  const account = getAccount(visit);
  return orShowAgain(visit, sent, showAccount, () => {
    const change = parseAccountChange({
      standing: textOf(sent, 'standing'),
      kind: textOf(sent, 'kind'),
      trialEnds: textOf(sent, 'trial_ends').trim() || 'never',
      admin: textOf(sent, 'admin') === 'true',
    });
    changeAccount(db, account, change, visit.account.id);
    return respondRedirect(PATH, { message: `${account.email} saved.` });
  });
}

async function resetSecrets(visit: Visit): Promise<View> {
  const account = getAccount(visit);
  return secretsView(account.email, await resetAccount(visit.services.db, account));
}
