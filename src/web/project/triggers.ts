// The triggers of a project, which start its builds, and the forms to create one. The page of one is in trigger.ts.

import { html } from 'hono/html';
import { triggers } from '../../api/triggers.ts';
import { defaultOptions, type TriggerType, triggerTypes } from '../../domain/trigger/trigger.ts';
import { findVisibleProject } from '../../store/projects.ts';
import { findRepositoryBranch } from '../../store/trigger/firings.ts';
import { listTriggers } from '../../store/trigger/triggers.ts';
import { emptyState, linkButton, olderLink, relativeTime, table } from '../frame/components.ts';
import { formTo, renderForm, submitButton } from '../frame/form.ts';
import { respondChanges } from '../frame/page-stream.ts';
import { action, form, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, performPage, type View } from '../frame/visit.ts';
import { type ProjectVisit, projectPath, projectView } from './frame.ts';
import { showSecret } from './trigger.ts';
import { initialOptions, triggerFields } from './trigger-fields.ts';
import { byHand, describeTrigger, shownState, type TriggerRecord, triggerChoices } from './trigger-text.ts';

const PATH = '/ui/projects/:project_id/triggers';
const TRIGGERS_PER_PAGE = 100;

export const triggersPages: Route[] = [
  page(PATH, showTriggers),
  page(`${PATH}/stream`, followTriggers),
  page(`${PATH}/new`, showChoice),
  form(`${PATH}/new/schedule/times`, (visit, sent) => {
    visit.refused = { action: newPath(visit, 'schedule'), sent, errors: {} };
    return showNew(visit, 'schedule');
  }),
  ...triggerTypes.flatMap(type => [
    page(`${PATH}/new/${type}`, visit => showNew(visit, type)),
    action(`${PATH}/new/${type}`, triggers.create, {
      showForm: visit => showNew(visit, type),
      prepare: sent => sent.set('trigger_type', type),
      done: (visit, created) =>
        type === 'push'
          ? showSecret(visit, created, 'Trigger created')
          : {
              to: projectPath(visit, `/triggers/${created.id_str}`),
              message: `Trigger ${created.name} created.`,
            },
    }),
  ]),
];

const newPath = (visit: ProjectVisit, type: TriggerType) => projectPath(visit, `/triggers/new/${type}`);

async function showTriggers(visit: ProjectVisit): Promise<View> {
  const { items, next } = await performPage(visit, triggers.list, TRIGGERS_PER_PAGE);
  const create = linkButton(projectPath(visit, '/triggers/new'), 'New trigger', 'primary');
  return projectView(visit, {
    tab: 'triggers',
    live: projectPath(visit, `/triggers${visit.url.search}`),
    changes: projectPath(visit, '/triggers/stream'),
    body: html`<div id="triggers" data-live>${
      items.length === 0
        ? emptyState({
            title: 'Builds start only by hand',
            text: 'A trigger starts builds automatically: when somebody pushes, when a check of the repository finds a new commit, or on a schedule.',
            action: create,
          })
        : html`<div class="section-head"><h2>Triggers</h2>${create}</div>
${table({
  caption: 'Triggers',
  columns: ['Name', 'Builds', 'State', 'Last fired', 'Next'],
  rows: items.map(item => ({ cells: triggerCells(visit, item) })),
})}${olderLink(visit.url, next, 'Older triggers')}`
    }</div>`,
  });
}

const nextLabels: Record<TriggerType, string> = { push: 'checks', poll: 'checks', schedule: 'builds' };

function triggerCells(visit: ProjectVisit, item: TriggerRecord): Html[] {
  const { error, fired_at: firedAt, next_at: nextAt } = item;
  return [
    html`<a class="name" href="${projectPath(visit, `/triggers/${item.id_str}`)}">${item.name}</a>`,
    html`<span class="words">${describeTrigger(item)}</span>`,
    html`<div>${stateBadge(shownState(item))}${item.enabled && error ? html`<div class="why">${error}</div>` : ''}</div>`,
    firedAt === null ? html`<span class="quiet number">never</span>` : relativeTime(Date.parse(firedAt)),
    nextAt === null
      ? html`<span class="quiet">–</span>`
      : html`<div>${item.late ? 'due' : nextLabels[item.trigger_type]} ${relativeTime(Date.parse(nextAt))}${item.late ? html` <span class="tag">late</span>` : ''}</div>`,
  ];
}

function followTriggers(visit: ProjectVisit): Response {
  const { db } = visit.services;
  const { project } = visit.found;
  const rows = listTriggers(db, project.id, { limit: TRIGGERS_PER_PAGE, before: undefined });
  return respondChanges(visit, {
    topics: [`project:${project.id}`, ...rows.map(({ id }) => `trigger:${id}`)],
    maySee: caller => findVisibleProject(db, caller.accountId, project.id),
  });
}

function showChoice(visit: ProjectVisit): View {
  return projectView(visit, {
    tab: 'triggers',
    subpage: { heading: 'How should builds start?', title: 'New trigger' },
    body: html`<ul class="choices">${triggerTypes.map(
      type =>
        html`<li><a class="name" href="${newPath(visit, type)}">${triggerChoices[type].label}</a><p>${triggerChoices[type].hint}</p></li>`,
    )}<li><a class="name" href="${projectPath(visit)}">${byHand.label}</a><p>${byHand.hint}</p></li></ul>
<p class="older"><a href="/ui/manual/triggers">Triggers in the manual</a></p>`,
  });
}

function showNew(visit: ProjectVisit, type: TriggerType): View {
  const create = formTo(visit, newPath(visit, type), {
    name: triggerChoices[type].name,
    ...initialOptions({
      ...defaultOptions[type],
      ...(type === 'schedule' && {
        cron: '0 3 * * *',
        branch: findRepositoryBranch(visit.services.db, visit.found.project) ?? 'main',
      }),
    }),
  });
  return projectView(visit, {
    tab: 'triggers',
    subpage: { heading: `New trigger: ${headings[type]}` },
    scripts: type === 'schedule' ? ['schedule.js'] : [],
    body: renderForm(create, {
      fields: html`<p class="lead">${triggerChoices[type].hint}</p>${triggerFields(visit, create, type, { address: `${create.action}/times` })}`,
      submit: html`${submitButton('Create trigger')} ${linkButton(projectPath(visit, '/triggers'), 'Back')}`,
    }),
  });
}

const headings: Record<TriggerType, string> = { push: 'push', poll: 'poll', schedule: 'schedule' };
