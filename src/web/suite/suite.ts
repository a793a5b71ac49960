// The pages of a suite: its history, and its settings with environment variables, rules, dependencies and cache.

import { html } from 'hono/html';
import { suites } from '../../api/suites.ts';
import { linkButton } from '../frame/components.ts';
import { actionButton, formTo, renderForm, submitButton } from '../frame/form.ts';
import { action, page, type Route } from '../frame/route.ts';
import type { Html, View } from '../frame/visit.ts';
import { projectPath, type SuiteVisit, suitePath } from '../project/frame.ts';
import { suiteFields } from '../project/suites.ts';
import { renderCache, suiteCachePages } from './cache.ts';
import { renderSuiteDependencies, suiteDependencyPages } from './dependencies.ts';
import { renderDryRun } from './dry-run.ts';
import { suiteView } from './frame.ts';
import { showSuiteHistory } from './history.ts';
import { renderRules, suiteRulePages } from './rules.ts';
import { renderVariables, suiteVariablePages } from './variables.ts';

const PATH = '/ui/projects/:project_id/suites/:suite_id';

export const suitePages: Route[] = [
  page(PATH, showSuiteHistory),
  page(`${PATH}/settings`, showSettings),
  action(`${PATH}/settings`, suites.update, {
    showForm: showSettings,
    done: (visit, suite) => ({ to: suitePath(visit, '/settings'), message: `Suite ${suite.name} saved.` }),
  }),
  action(`${PATH}/delete`, suites.delete, {
    showForm: showSettings,
    done: visit => ({
      to: projectPath(visit, '/suites'),
      message: `Suite ${visit.found.suite.name} deleted. Its builds stay visible.`,
    }),
  }),
  ...suiteVariablePages(showSettings),
  ...suiteRulePages(showSettings),
  ...suiteDependencyPages(showSettings),
  ...suiteCachePages(showSettings),
];

function showSettings(visit: SuiteVisit): View {
  const { suite } = visit.found;
  return suiteView(visit, {
    tab: 'settings',
    body: html`<div class="parts">
<section class="panel" aria-labelledby="settings"><h2 id="settings">Suite</h2>${renderSettings(visit)}</section>
<section class="panel" aria-labelledby="variables"><h2 id="variables">Environment variables</h2>${renderVariables(visit)}</section>
<section class="panel" aria-labelledby="rules"><h2 id="rules">Rules</h2>${renderRules(visit)}
<h3 id="dry-run">Dry run</h3>${renderDryRun(visit, [suite])}</section>
<section class="panel" aria-labelledby="dependencies"><h2 id="dependencies">Dependencies</h2>${renderSuiteDependencies(visit)}</section>
<section class="panel" aria-labelledby="cache"><h2 id="cache">Cache</h2>${renderCache(visit)}</section>
<section class="panel danger" aria-labelledby="delete"><h2 id="delete">Delete this suite</h2>
<p>This also deletes its variables and rules. Its builds stay visible.</p>
${actionButton(formTo(visit, suitePath(visit, '/delete')), 'Delete suite', { tone: 'danger', confirm: `Delete the suite ${suite.name}?`, yes: 'Delete suite', no: 'Keep suite' })}
</section>
</div>`,
  });
}

function renderSettings(visit: SuiteVisit): Html {
  const { suite } = visit.found;
  const change = formTo(visit, suitePath(visit, '/settings'), {
    name: suite.name,
    command: suite.command,
    description: suite.description,
    image: suite.image ?? '',
    artifacts: suite.artifacts,
    reports: suite.reports,
  });
  return renderForm(change, {
    fields: suiteFields(visit, change),
    submit: html`${submitButton('Save suite')} ${linkButton(projectPath(visit, '/suites'), 'All suites')}`,
  });
}
