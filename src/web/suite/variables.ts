// The environment variables of a suite. The page contains a value only after the user reveals it.

import { html } from 'hono/html';
import { suites } from '../../api/suites.ts';
import { parseId } from '../../domain/id.ts';
import { SealedValueError } from '../../store/database/vault.ts';
import { listSealedVariables, openVariable, type SealedVariable } from '../../store/suites.ts';
import { linkButton, table } from '../frame/components.ts';
import {
  actionButton,
  type Form,
  formTo,
  renderForm,
  submitButton,
  textArea,
  textField,
} from '../frame/form.ts';
import { action, page, type Route } from '../frame/route.ts';
import type { Html, View, Visit } from '../frame/visit.ts';
import { projectView, type SuiteVisit, suitePath } from '../project/frame.ts';

const PATH = '/ui/projects/:project_id/suites/:suite_id/environment_variables';

export const suiteVariablePages = (showForm: (visit: SuiteVisit) => View): Route[] => [
  action(PATH, suites.addVariable, {
    showForm,
    done: (visit, { name }) => ({ to: suitePath(visit, '/settings'), message: `Variable ${name} added.` }),
  }),
  page(`${PATH}/:variable_id`, showVariable),
  action(`${PATH}/:variable_id`, suites.updateVariable, {
    showForm: showVariable,
    done: (visit, { name }) => ({ to: suitePath(visit, '/settings'), message: `Variable ${name} saved.` }),
  }),
  action(`${PATH}/:variable_id/delete`, suites.removeVariable, {
    showForm,
    done: visit => ({
      to: suitePath(visit, '/settings'),
      message: `Variable ${visit.found.variable.name} removed.`,
    }),
  }),
];

export function renderVariables(visit: SuiteVisit): Html {
  const variables = listSealedVariables(visit.services.db, visit.found.suite.id);
  const add = formTo(visit, suitePath(visit, '/environment_variables'));
  const revealed = parseId(visit.url.searchParams.get('reveal') ?? '');
  return html`${
    variables.length === 0
      ? html`<p class="quiet">No variables yet. Add what the command needs but the repository must not contain, such as passwords. Values are stored encrypted, and those of at least 8 characters are masked in logs.</p>`
      : table({
          caption: 'Environment variables',
          columns: ['Name', 'Value', 'Actions'],
          rows: variables.map(variable => ({
            cells: variableCells(visit, variable, variable.id === revealed),
          })),
        })
  }
<h3>Add a variable</h3>
${renderForm(add, { fields: variableFields(add), submit: submitButton('Add variable', 'plain') })}`;
}

function variableCells(visit: SuiteVisit, variable: SealedVariable, isRevealed: boolean): Html[] {
  const { id, name } = variable;
  const path = suitePath(visit, `/environment_variables/${id}`);
  return [
    html`<code id="variable-${id}">${name}</code>`,
    isRevealed
      ? renderContent(visit, variable)
      : html`<span class="quiet" aria-hidden="true">••••••••</span><span class="sr">hidden</span>`,
    html`<div class="row">${
      isRevealed
        ? html`<a class="button plain" href="${suitePath(visit, '/settings')}#variables">Hide<span class="sr"> ${name}</span></a>`
        : html`<a class="button plain" href="${suitePath(visit, '/settings')}?reveal=${id}#variables">Reveal<span class="sr"> ${name}</span></a>`
    }<a class="button plain" href="${path}">Edit<span class="sr"> ${name}</span></a>${actionButton(
      formTo(visit, `${path}/delete`),
      'Remove',
      {
        tone: 'danger',
        confirm: `Remove the variable ${name}?`,
        yes: 'Remove variable',
        no: 'Keep variable',
      },
    )}</div>`,
  ];
}

/** A value that cannot be decrypted must not break the rest of the page. */
function renderContent(visit: SuiteVisit, variable: SealedVariable): Html {
  try {
    const { content } = openVariable(visit.services.db, variable);
    return content === ''
      ? html`<span class="quiet">empty</span>`
      : html`<code class="lines">${content}</code>`;
  } catch (error) {
    if (!(error instanceof SealedValueError)) throw error;
    return html`This value cannot be decrypted: it was changed in the database. Remove the variable and add it again.`;
  }
}

const variableFields = (form: Form) =>
  html`${textField(form, { name: 'name', label: 'Name', required: true, code: true, placeholder: 'API_URL' })}
${textArea(form, { name: 'content', label: 'Value', code: true, rows: 2, hint: 'At most 131,072 bytes.' })}`;

function showVariable(visit: Visit<'project' | 'suite' | 'variable'>): View {
  const { suite, variable } = visit.found;
  const change = formTo(visit, suitePath(visit, `/environment_variables/${variable.id}`), {
    name: variable.name,
    content: openVariable(visit.services.db, variable).content,
  });
  return projectView(visit, {
    tab: 'suites',
    subpage: { heading: variable.name, title: `${variable.name} · ${suite.name}` },
    body: renderForm(change, {
      fields: variableFields(change),
      submit: html`${submitButton('Save variable')} ${linkButton(suitePath(visit, '/settings#variables'), 'Back')}`,
    }),
  });
}
