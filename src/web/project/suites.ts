// Lists the suites of a project with a dry run of their rules, and creates new suites.

import { html } from 'hono/html';
import { suites } from '../../api/suites.ts';
import { parseId } from '../../domain/id.ts';
import { countSuiteItems, type SuiteCounts } from '../../store/overview.ts';
import { type BriefRun, listSuiteRuns } from '../../store/result/runs.ts';
import { listSuitesAfter, type Suite } from '../../store/suites.ts';
import { emptyState, linkButton, table } from '../frame/components.ts';
import { type Form, formTo, renderForm, submitButton, textArea, textField } from '../frame/form.ts';
import { imageField } from '../frame/image-field.ts';
import { action, page, type Route } from '../frame/route.ts';
import type { Html, View } from '../frame/visit.ts';
import { renderDryRun } from '../suite/dry-run.ts';
import { type ProjectVisit, projectPath, projectView } from './frame.ts';
import { RUNS_OF_LISTED_SUITE, renderLastResult, renderRate, renderSparkline } from './history.ts';

const SUITES_PER_PAGE = 50;
const PATH = '/ui/projects/:project_id/suites';

export const suitesPages: Route[] = [
  page(PATH, showSuites),
  page(`${PATH}/new`, showNewSuite),
  action(`${PATH}/new`, suites.create, {
    showForm: showNewSuite,
    done: (visit, suite) => ({
      to: projectPath(visit, `/suites/${suite.id_str}/settings`),
      message: `Suite ${suite.name} created. Without rules, it runs for every commit.`,
    }),
  }),
];

async function showSuites(visit: ProjectVisit): Promise<View> {
  const { db } = visit.services;
  const after = parseId(visit.url.searchParams.get('after') ?? '') ?? 0n;
  const rows = listSuitesAfter(db, visit.found.project.id, after, SUITES_PER_PAGE + 1);
  const suites = rows.slice(0, SUITES_PER_PAGE);
  const counts = countSuiteItems(
    db,
    suites.map(({ id }) => id),
  );
  const histories = await listSuiteRuns(db, suites, RUNS_OF_LISTED_SUITE);
  const isMore = rows.length > SUITES_PER_PAGE;
  const create = linkButton(projectPath(visit, '/suites/new'), 'New suite', 'primary');
  return projectView(visit, {
    tab: 'suites',
    body:
      suites.length === 0 && after === 0n
        ? emptyState({
            title: 'No suites yet',
            text: 'A suite is a command that tests a commit, such as make check. Each suite runs in its own container. Its rules decide for which commits.',
            action: create,
          })
        : html`<div class="section-head"><h2>Suites</h2><div class="row">${linkButton(projectPath(visit, '/history'), 'History')}${create}</div></div>
${table({
  caption: 'Suites',
  columns: ['Suite', 'Last result', 'Success rate', 'Duration', 'Contents'],
  rows: suites.map((suite, at) => ({
    cells: suiteCells(visit, suite, histories[at]?.runs ?? [], counts.get(suite.id)),
  })),
})}
${isMore ? html`<p class="older"><a class="button plain" href="${projectPath(visit, `/suites?after=${suites.at(-1)?.id}`)}">More suites</a></p>` : ''}
<section class="panel spaced" aria-labelledby="dry-run"><h2 id="dry-run">Dry run</h2>${renderDryRun(visit, suites)}</section>`,
  });
}

function suiteCells(
  visit: ProjectVisit,
  suite: Suite,
  runs: readonly BriefRun[],
  counts: SuiteCounts | undefined,
): Html[] {
  const contents = [
    counted(counts?.rules, 'rule', 'no rules: always runs'),
    counted(counts?.variables, 'variable', ''),
    counted(counts?.dependencies, 'dependency', '', 'dependencies'),
  ].filter(Boolean);
  const [command = '', ...more] = suite.command.split('\n');
  return [
    html`<a class="name" href="${projectPath(visit, `/suites/${suite.id}`)}">${suite.name}</a><div class="second"><code>${command}${more.length > 0 ? ' …' : ''}</code></div>${suite.description ? html`<div class="second">${suite.description}</div>` : ''}`,
    renderLastResult(visit, runs),
    renderRate(runs),
    renderSparkline(runs),
    html`<span class="quiet">${contents.join(', ')}</span>`,
  ];
}

const counted = (count = 0, word: string, none: string, plural = `${word}s`) =>
  count === 0 ? none : `${count} ${count === 1 ? word : plural}`;

function showNewSuite(visit: ProjectVisit): View {
  const create = formTo(visit, projectPath(visit, '/suites/new'));
  return projectView(visit, {
    tab: 'suites',
    subpage: { heading: 'New suite' },
    body: renderForm(create, {
      fields: suiteFields(visit, create),
      submit: html`${submitButton('Create suite')} ${linkButton(projectPath(visit, '/suites'), 'Back')}`,
    }),
  });
}

export function suiteFields(visit: ProjectVisit, form: Form): Html {
  return html`${textField(form, { name: 'name', label: 'Name', required: true })}
${textArea(form, { name: 'command', label: 'Command', required: true, code: true, rows: 3, hint: 'Runs with sh in a fresh checkout of the commit. The suite passes if the exit status is 0.' })}
${textArea(form, { name: 'description', label: 'Description', rows: 2 })}
${imageField(visit.services, form, 'The image in which the command runs.')}
${textArea(form, { name: 'artifacts', label: 'Artifacts', code: true, rows: 2, hint: 'Files of the checkout to keep, in addition to those in /srv/artifacts: a glob on each line, such as coverage/** or dist/*.deb.' })}
${textArea(form, { name: 'reports', label: 'Test reports', code: true, rows: 2, hint: 'Test reports in JUnit XML: a glob on each line, such as build/reports/*.xml.' })}`;
}
