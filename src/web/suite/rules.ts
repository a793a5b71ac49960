// The rules of a suite, which decide for which commits it runs.

import { html } from 'hono/html';
import { suites } from '../../api/suites.ts';
import { operators, type Rule, subjects } from '../../domain/rules.ts';
import { listAllRules } from '../../store/suites.ts';
import { actionButton, formTo, renderForm, selectField, submitButton, textField } from '../frame/form.ts';
import { action, type Route } from '../frame/route.ts';
import type { Html, View } from '../frame/visit.ts';
import { type SuiteVisit, suitePath } from '../project/frame.ts';
import { operatorLabels, renderRule, subjectLabels } from './rule-results.ts';

const PATH = '/ui/projects/:project_id/suites/:suite_id/rules';

export const suiteRulePages = (showForm: (visit: SuiteVisit) => View): Route[] => [
  action(PATH, suites.addRule, {
    showForm,
    done: visit => ({ to: suitePath(visit, '/settings#rules'), message: 'Rule added.' }),
  }),
  action(`${PATH}/:rule_id/delete`, suites.removeRule, {
    showForm,
    done: visit => ({ to: suitePath(visit, '/settings#rules'), message: 'Rule removed.' }),
  }),
];

export function renderRules(visit: SuiteVisit): Html {
  const rules = listAllRules(visit.services.db, visit.found.suite.id);
  const add = formTo(visit, suitePath(visit, '/rules'), { subject: 'commit.branches', operator: 'equals' });
  return html`<p class="${rules.length === 0 ? 'quiet' : 'hint'}">${
    rules.length === 0
      ? 'No rules yet, so the suite runs for every commit. Add rules to run it only for some.'
      : 'The suite runs for a commit if all rules are met.'
  }</p>
${
  rules.length === 0
    ? ''
    : html`<ul class="rule-list">${rules.map(
        rule =>
          html`<li><span>${renderRule(rule as Rule)}</span>${actionButton(formTo(visit, suitePath(visit, `/rules/${rule.id}/delete`)), 'Remove', { tone: 'danger', confirm: 'Remove this rule?', yes: 'Remove rule', no: 'Keep rule' })}</li>`,
      )}</ul>`
}
<h3>Add a rule</h3>
${renderForm(add, {
  className: 'form wide',
  fields: html`<div class="row">${selectField(add, { name: 'subject', label: 'Subject', required: true, choices: subjects.map(value => ({ value, label: `${value} (${subjectLabels[value]})` })) })}
${selectField(add, { name: 'operator', label: 'Operator', required: true, choices: operators.map(value => ({ value, label: operatorLabels[value] })) })}
${textField(add, { name: 'value', label: 'Value', required: true, code: true, placeholder: 'main' })}</div>
<p class="hint">“Matches” compares the whole value with a pattern: <code>*</code> for anything, <code>?</code> for one character, <code>[a-z]</code> for one of a set.</p>
<p class="hint"><code>request.trigger</code> is <code>push</code>, <code>poll</code> or <code>schedule</code>, and empty if a person or the API started the build. A nightly suite has the rule <code>request.trigger</code> equals <code>schedule</code>. <code>request.trigger_name</code> is the name of the trigger.</p>`,
  submit: submitButton('Add rule', 'plain'),
})}`;
}
