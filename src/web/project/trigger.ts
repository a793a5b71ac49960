// The page of one trigger: whether it works, how to set it up in the forge, its history, and its settings.

import { html } from 'hono/html';
import { hookUrl, present, triggers } from '../../api/triggers.ts';
import { presentFiring } from '../../contract/records/trigger.ts';
import { parseId } from '../../domain/id.ts';
import { parseRef } from '../../domain/trigger/trigger.ts';
import { findBuildRequest } from '../../store/builds.ts';
import { findVisibleProject, publicKeyOf } from '../../store/projects.ts';
import { FIRE, findLastHook, LOOK } from '../../store/trigger/firings.ts';
import { copyText, linkButton, olderLink, propertyList, relativeTime, table } from '../frame/components.ts';
import { actionButton, formTo, renderForm, submitButton } from '../frame/form.ts';
import { respondChanges } from '../frame/page-stream.ts';
import { action, form, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, performPage, type View, type Visit } from '../frame/visit.ts';
import { type Hook, renderForgeSetup } from './forge-setup.ts';
import { isOwner, type ProjectVisit, projectPath, projectView } from './frame.ts';
import { initialOptions, renderTimes, triggerFields } from './trigger-fields.ts';
import {
  describeFiring,
  describeTrigger,
  type FiringRecord,
  formatPlanned,
  pullRequestOf,
  SCHEDULE,
  shownState,
  type TriggerRecord,
} from './trigger-text.ts';

const PATH = '/ui/projects/:project_id/triggers/:trigger_id';
const FIRINGS_PER_PAGE = 50;

type TriggerVisit = Visit<'project' | 'trigger'>;

const triggerPath = (visit: TriggerVisit, rest = '') =>
  projectPath(visit, `/triggers/${visit.found.trigger.id}${rest}`);

export const triggerPages: Route[] = [
  page(PATH, showTrigger),
  page(`${PATH}/stream`, followTrigger),
  action(PATH, triggers.update, {
    showForm: showTrigger,
    done: visit => ({ to: triggerPath(visit), message: 'Settings saved.' }),
  }),
  form(`${PATH}/times`, (visit, sent) => {
    visit.refused = { action: triggerPath(visit), sent, errors: {} };
    return showTrigger(visit);
  }),
  ...(['enable', 'disable'] as const).map(verb =>
    action(`${PATH}/${verb}`, triggers.update, {
      showForm: showTrigger,
      prepare: sent => sent.set('enabled', String(verb === 'enable')),
      done: visit => ({ to: triggerPath(visit), message: `Trigger ${verb}d.` }),
    }),
  ),
  action(`${PATH}/fire`, triggers.fire, {
    showForm: showTrigger,
    // The page shows the result when it is there.
    prepare: sent => sent.set('wait', 'false'),
    done: visit => ({ to: triggerPath(visit) }),
  }),
  action(`${PATH}/secret`, triggers.replaceSecret, {
    showForm: showTrigger,
    done: (visit, replaced) => showSecret(visit, replaced, 'New secret created'),
  }),
  action(`${PATH}/delete`, triggers.delete, {
    showForm: showTrigger,
    done: visit => ({
      to: projectPath(visit, '/triggers'),
      message: `Trigger ${visit.found.trigger.name} deleted.`,
    }),
  }),
];

/** Shows the secret of a push trigger, this once, and waits for the first call of the forge. */
export function showSecret(
  visit: ProjectVisit,
  trigger: TriggerRecord & { url?: string; secret?: string },
  heading: string,
): View {
  const path = projectPath(visit, `/triggers/${trigger.id_str}`);
  const { url = '', secret = '' } = trigger;
  return projectView(visit, {
    tab: 'triggers',
    live: path,
    changes: `${path}/stream`,
    subpage: {
      heading: trigger.name,
      subtitle: html`${stateBadge(shownState(trigger))} <span class="words">${describeTrigger(trigger)}</span>`,
    },
    body: html`<section class="panel" aria-labelledby="secret-head"><h2 id="secret-head">${heading}</h2>
<p class="lead">Copy the secret to the forge now. It is not shown again. Assay uses it to check that calls come from the forge.</p>
${propertyList([
  ['Address', copyText(url, 'Copy address')],
  ['Secret', copyText(secret, 'Copy secret')],
])}</section>
<section class="panel" aria-labelledby="setup-head"><h2 id="setup-head">Set up the forge</h2>${renderForgeSetup(visit, { url, secret, pulls: trigger.options.pull_requests })}</section>
${renderHookState(visit, trigger)}
<div class="row">${linkButton(path, 'Done', 'primary')}</div>`,
  });
}

async function showTrigger(visit: TriggerVisit): Promise<View> {
  const { trigger } = visit.found;
  const record = present(visit.services.db, trigger);
  const path = triggerPath(visit);
  const isPush = record.trigger_type === 'push';
  const history = await renderHistory(visit, record);
  const hook = { url: hookUrl(visit.services, trigger), pulls: record.options.pull_requests };
  const isNew = isPush && !findLastHook(visit.services.db, trigger.id);
  return projectView(visit, {
    tab: 'triggers',
    live: path + (visit.request.method === 'GET' ? visit.url.search : ''),
    changes: `${path}/stream`,
    ...(record.trigger_type === 'schedule' && { scripts: ['schedule.js'] }),
    subpage: {
      heading: record.name,
      subtitle: html`${stateBadge(shownState(record))} <span class="words">${describeTrigger(record)}</span>`,
      actions: renderActions(visit, record),
    },
    body: html`<div id="trouble" data-live>${renderTrouble(visit, record)}</div>
${isPush ? renderHookState(visit, record) : ''}
${isNew ? renderSetup(visit, hook) : ''}
${record.trigger_type === 'schedule' ? html`<section class="panel" id="upcoming" data-live aria-label="Next times">${renderNext(record)}</section>` : ''}
${history}
${isPush && !isNew ? renderSetup(visit, hook) : ''}
${renderSettings(visit, record)}
${isOwner(visit) ? renderDelete(visit, record) : ''}`,
  });
}

function renderActions(visit: TriggerVisit, { enabled, trigger_type: type }: TriggerRecord): Html {
  const button = (verb: string, label: string) =>
    actionButton(formTo(visit, triggerPath(visit, `/${verb}`)), label);
  return html`<div class="row">${button('fire', type === 'schedule' ? 'Build now' : 'Check now')}${enabled ? button('disable', 'Disable') : button('enable', 'Enable')}</div>`;
}

/** Why the trigger does not work, and what to do. */
function renderTrouble(visit: TriggerVisit, { enabled, state, error, late }: TriggerRecord): Html | string {
  const { services, found } = visit;
  if (!enabled) return html`<p class="flash failed">This trigger is disabled: it starts no builds.</p>`;
  if (error !== null)
    return html`<section class="panel danger" aria-labelledby="trouble-head"><h2 id="trouble-head">${state === 'failing' ? 'The repository cannot be read' : 'The last check of the repository failed'}</h2>
<p>${error}</p>
<p>Check that the address <code>${found.project.repositoryUrl}</code> is correct, that its host can be reached, and that the project’s key is installed there. Assay keeps trying at increasing intervals. Use <b>Check now</b> to try at once.</p>
${copyText(publicKeyOf(services.db, found.project), 'Copy key')}</section>`;
  return late
    ? html`<p class="flash failed">The next check is late, because many repositories are being polled. An administrator can raise the setting POLL_RATE.</p>`
    : '';
}

/** Whether the forge's calls arrive. It changes while the page is open. */
function renderHookState(visit: ProjectVisit, trigger: TriggerRecord): Html {
  const { db } = visit.services;
  const last = findLastHook(db, BigInt(trigger.id_str));
  const { refused_count: count, refused_at: refusedAt } = trigger;
  const refusedMs = refusedAt === null ? undefined : Date.parse(refusedAt);
  const isRefused = refusedMs !== undefined && refusedMs >= (last?.createdAt ?? 0);
  const firing = last && presentFiring(last);
  return html`<section class="panel" aria-labelledby="hook-head"><h2 id="hook-head">Calls from the forge</h2><div role="status"><div id="hook" data-live>${
    isRefused
      ? html`<p>${stateBadge('refused')} ${relativeTime(refusedMs)}</p>
<p>Calls with a wrong signature: ${count}. Nothing was built for them. Check that the whole secret was entered, without spaces, and in the webhook of this trigger. A forge sends no signature if its secret field is empty. If you have lost the secret, create a new one.</p>`
      : firing
        ? html`<p>${stateBadge('received')} ${relativeTime(last.createdAt)}</p>
${renderOutcome(visit, firing, trigger)}`
        : html`<p>${stateBadge('waiting_for_delivery')}</p><p class="quiet">Set up the forge, then push a commit. This page shows when the call arrives.</p>`
  }</div></div></section>`;
}

const renderSetup = (visit: TriggerVisit, hook: Hook): Html =>
  html`<section class="panel" aria-labelledby="setup-head"><h2 id="setup-head">Set up the forge</h2>
${propertyList([
  ['Address', copyText(hook.url, 'Copy address')],
  [
    'Secret',
    html`<div>shown once, when it was created ${actionButton(formTo(visit, triggerPath(visit, '/secret')), 'New secret', { confirm: 'Create a new secret? The old one stays valid for another 24 hours.', yes: 'Create new secret', no: 'Keep old secret' })}</div>`,
  ],
])}${renderForgeSetup(visit, hook)}</section>`;

const renderNext = ({ upcoming = [], options }: TriggerRecord): Html =>
  upcoming.length === 0
    ? html`<p class="quiet">No builds are scheduled.</p>`
    : renderTimes(
        upcoming.map(time => Date.parse(time)),
        options.time_zone,
      );

async function renderHistory(visit: TriggerVisit, trigger: TriggerRecord): Promise<Html> {
  const { items, next } = await performPage(visit, triggers.listFirings, FIRINGS_PER_PAGE);
  return html`<section id="history" data-live aria-labelledby="history-head"><h2 id="history-head">History</h2>
${table({
  caption: 'History',
  columns: ['What happened', 'Result', 'When'],
  rows: items.map(firing => ({
    cells: [
      renderEvent(firing, trigger),
      renderOutcome(visit, firing, trigger),
      relativeTime(Date.parse(firing.created_at)),
    ],
  })),
  empty: {
    title: 'Nothing has happened yet',
    text: 'Each push, check and scheduled time is listed here, with the reason why something was or was not built.',
  },
})}
${olderLink(visit.url, next, 'Older history')}</section>`;
}

/** What the trigger saw: a push, what a check found, or a scheduled time. */
function renderEvent(firing: FiringRecord, trigger: TriggerRecord): Html {
  const { event, ref, before, after, pushed_by: pushedBy, planned_at: plannedAt, delivery } = firing;
  const parsed = ref === null ? undefined : parseRef(ref);
  const pull = ref === null ? undefined : pullRequestOf(ref);
  const name =
    ref === null
      ? ''
      : pull
        ? ` ${pull}`
        : html` ${parsed?.kind === 'tag' ? 'tag ' : ''}<code>${parsed?.name ?? ref}</code>`;
  const hashes = [before, after]
    .filter(hash => hash !== null)
    .map(hash => html`<code>${hash.slice(0, 10)}</code>`);
  const details = [
    ...(hashes.length === 0 ? [] : [html`${hashes[0]}${hashes[1] ? html` → ${hashes[1]}` : ''}`]),
    ...(pushedBy === null ? [] : [html`by ${pushedBy}`]),
    ...(delivery === null ? [] : [html`delivery ${delivery}`]),
  ];
  const titles: Record<string, () => Html> = {
    [LOOK]: () => html`Check of${name === '' ? ' the repository' : name}`,
    [FIRE]: () => html`${trigger.trigger_type === 'schedule' ? 'Build' : 'Check'} by hand${name}`,
    [SCHEDULE]: () =>
      html`${plannedAt === null ? 'Scheduled time' : formatPlanned(Date.parse(plannedAt), trigger.options.time_zone)}${name}`,
  };
  const title =
    titles[event]?.() ??
    (ref === null
      ? html`Call: <code>${event}</code>`
      : html`${after === null ? 'Deletion of' : before === null ? 'Creation of' : 'Push to'}${name}`);
  return html`<div class="words">${title}</div>${details.length === 0 ? '' : html`<div class="second">${details.map((one, at) => html`${at === 0 ? '' : ', '}${one}`)}</div>`}`;
}

/** The outcome, its reason, and the build that it led to. */
function renderOutcome(visit: ProjectVisit, firing: FiringRecord, trigger: TriggerRecord): Html {
  const { outcome, build_request_id_str: requestId } = firing;
  const reason = describeFiring(firing, trigger);
  const id = parseId(requestId);
  const request =
    id === undefined ? undefined : findBuildRequest(visit.services.db, visit.found.project.id, id);
  return html`<div class="outcome"><div class="request-head">${stateBadge(outcome)}${
    request
      ? html` <a href="${request.commitId === null ? projectPath(visit, `/build_requests?before=${request.id + 1n}`) : projectPath(visit, `/commits/${request.commitId}`)}">Build of ${request.commitRef}</a> ${stateBadge(request.buildState)}`
      : ''
  }</div>${reason === '' ? '' : html`<div class="why">${reason}</div>`}</div>`;
}

function renderSettings(visit: TriggerVisit, record: TriggerRecord): Html {
  const change = formTo(visit, triggerPath(visit), { name: record.name, ...initialOptions(record.options) });
  return html`<section class="panel" aria-labelledby="settings-head"><h2 id="settings-head">Settings</h2>${renderForm(
    change,
    {
      fields: triggerFields(visit, change, record.trigger_type, {
        address: triggerPath(visit, '/times'),
        shown: record.options,
      }),
      submit: submitButton('Save settings'),
    },
  )}</section>`;
}

const renderDelete = (visit: TriggerVisit, { name }: TriggerRecord): Html =>
  html`<section class="panel danger" aria-labelledby="delete-head"><h2 id="delete-head">Delete</h2><p>Its history is deleted too. The builds that it started stay.</p>
${actionButton(formTo(visit, triggerPath(visit, '/delete')), 'Delete trigger', { tone: 'danger', confirm: `Delete the trigger ${name} and its history?`, yes: 'Delete trigger', no: 'Keep trigger' })}</section>`;

function followTrigger(visit: TriggerVisit): Response {
  const { db } = visit.services;
  const { project, trigger } = visit.found;
  return respondChanges(visit, {
    // The project's events report the builds that it has started.
    topics: [`trigger:${trigger.id}`, `events:${project.id}`],
    maySee: caller => findVisibleProject(db, caller.accountId, project.id),
  });
}
