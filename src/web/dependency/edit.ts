// The page that edits or deletes a dependency. The message after saving says when the changes take effect.

import { html } from 'hono/html';
import { dependencies } from '../../api/dependencies.ts';
import type { SentFields } from '../../api/http/body.ts';
import { LAUNCH_SECONDS } from '../../domain/dependency.ts';
import { dependencyRecord, listRelated, listRelating, listSuitesUsing } from '../../store/dependency-use.ts';
import { linkButton, pageHead } from '../frame/components.ts';
import { actionButton, formTo, renderForm, submitButton } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { action, form, orShowAgain, page, type Route } from '../frame/route.ts';
import { type Html, perform, type View } from '../frame/visit.ts';
import { dependencyFields } from './dependencies.ts';
import { type DependencyVisit, hrefOf, listing, PATH, requireOwner } from './frame.ts';

export const dependencyEditPages: Route[] = [
  page(`${PATH}/edit`, showEdit),
  form(`${PATH}/edit`, (visit, sent) => orShowAgain(visit, sent, showEdit, () => save(visit, sent))),
  action(`${PATH}/delete`, dependencies.delete, {
    showForm: showEdit,
    done: ({ found }) => ({
      to: '/ui/dependencies',
      message: `Dependency ${found.dependency.name} deleted.`,
    }),
  }),
];

function showEdit(visit: DependencyVisit): View {
  requireOwner(visit);
  const { dependency } = visit.found;
  const isDefaultTimeout = dependency.launchSeconds === LAUNCH_SECONDS.defaultValue;
  const form = formTo(visit, hrefOf(visit, '/edit'), {
    name: dependency.name,
    description: dependency.description,
    command: dependency.command,
    prefix: dependency.prefix,
    source: dependency.source,
    launch_command: dependency.launchCommand,
    launch_timeout: isDefaultTimeout ? '' : String(dependency.launchSeconds),
    environment: dependency.environment,
    library_path: String(dependency.libraryPath),
    recompile: String(dependency.recompile),
    image: dependency.image ?? '',
    'related_dependencies[]': listRelated(visit.services.db, dependency.id).map(({ id }) => id.toString()),
  });
  return {
    title: `Edit ${dependency.name}`,
    section: 'dependencies',
    styles: ['dependency.css'],
    body: html`${pageHead(`Edit ${dependency.name}`, { parent: { href: hrefOf(visit), label: dependency.name } })}
${renderForm(form, {
  fields: dependencyFields(visit, form, dependency.id),
  submit: html`${submitButton('Save')} ${linkButton(hrefOf(visit), 'Back')}`,
})}
${renderDelete(visit)}`,
  };
}

async function save(visit: DependencyVisit, sent: SentFields): Promise<Response> {
  const before = dependencyRecord(visit.services.db, visit.found.dependency);
  if (sent.get('launch_timeout') === '') sent.set('launch_timeout', String(LAUNCH_SECONDS.defaultValue));
  const after = await perform(visit, dependencies.update, { sent });
  return respondRedirect(hrefOf(visit), { message: describeSaved(before, after) });
}

type DependencyRecord = ReturnType<typeof dependencyRecord>;

/** The fields whose changes wait for the next build or compile, as the message names them. */
const takesEffect: Record<'build' | 'compile', readonly [field: keyof DependencyRecord, label: string][]> = {
  compile: [
    ['command', 'command'],
    ['prefix', 'prefix'],
    ['source', 'source directory'],
    ['image', 'image'],
    ['related_dependencies', 'related dependencies'],
  ],
  build: [
    ['launch_command', 'launch command'],
    ['launch_timeout', 'launch timeout'],
    ['environment', 'environment'],
    ['library_path', 'LD_LIBRARY_PATH'],
  ],
};

/** Says which changes take effect when. Before the first archive there is nothing to wait for. */
export function describeSaved(before: DependencyRecord, after: DependencyRecord): string {
  const sentences = (['compile', 'build'] as const).map(next => {
    const labels = takesEffect[next]
      .filter(([field]) => JSON.stringify(before[field]) !== JSON.stringify(after[field]))
      .map(([, label]) => label);
    const isOne = labels.length === 1 && labels[0] !== 'related dependencies';
    return labels.length === 0
      ? ''
      : ` The new ${listing(labels)} ${isOne ? 'takes' : 'take'} effect with the next ${next}.`;
  });
  return `Saved.${after.archive_file_size === null ? '' : sentences.join('')}`;
}

function renderDelete(visit: DependencyVisit): Html {
  const { dependency } = visit.found;
  const { db } = visit.services;
  const isUsed = listSuitesUsing(db, dependency.id).length + listRelating(db, dependency.id).length > 0;
  return html`<section class="panel danger"><h2>Delete this dependency</h2>
${
  isUsed
    ? html`<p>This dependency is in use. First detach it from all suites and related dependencies.</p>`
    : html`<p>This also deletes its archive and the compiled files.</p>${actionButton(formTo(visit, hrefOf(visit, '/delete')), 'Delete', { tone: 'danger', confirm: `Delete ${dependency.name} and its archive?`, yes: 'Delete dependency', no: 'Keep dependency' })}`
}</section>`;
}
