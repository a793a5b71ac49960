// Lists the account's own dependencies and shared ones, and creates new ones. The page of one dependency is dependency.ts.

import { html } from 'hono/html';
import { dependencies, present } from '../../api/dependencies.ts';
import type { presentDependency } from '../../contract/records/dependency.ts';
import { LAUNCH_SECONDS } from '../../domain/dependency.ts';
import { type Dependency, listOwnDependencies, listSharedDependencies } from '../../store/dependencies.ts';
import { listRelated, listSuitesUsing } from '../../store/dependency-use.ts';
import {
  emptyState,
  filterBox,
  formatSize,
  linkButton,
  olderLink,
  pageHead,
  type Row,
  table,
} from '../frame/components.ts';
import {
  checkBox,
  checkBoxes,
  type Form,
  formTo,
  renderForm,
  submitButton,
  textArea,
  textField,
} from '../frame/form.ts';
import { imageField } from '../frame/image-field.ts';
import { renderChanges, respondChanges } from '../frame/page-stream.ts';
import { action, page, type Route } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, performPage, type View, type Visit } from '../frame/visit.ts';
import { startFromRecipe } from './recipe.ts';

const LIST = '/ui/dependencies';
const NEW = `${LIST}/new`;

export const dependenciesPages: Route[] = [
  page(LIST, showDependencies),
  page(`${LIST}/stream`, followDependencies),
  page(NEW, showNewDependency),
  action(NEW, dependencies.create, {
    showForm: showNewDependency,
    done: (_, dependency) => ({
      to: `${LIST}/${dependency.id_ref}`,
      message: `Dependency ${dependency.name} created. Next, upload the archive of its source code.`,
    }),
  }),
];

type DependencyRecord = ReturnType<typeof presentDependency>;

const OFFERED = { limit: 500, before: undefined };
const SHARED_SHOWN = { limit: 200, before: undefined };
const RELATED = 'related_dependencies[]';

async function showDependencies(visit: Visit): Promise<View> {
  const query = (visit.url.searchParams.get('q') ?? '').trim().toLowerCase();
  const matches = (record: DependencyRecord) => searchTextOf(record).includes(query);
  // An account that must pay sees shared dependencies, but not its own.
  const isOwner = visit.caller.kind === 'user' && visit.caller.standing === 'active';
  const own = isOwner ? await listOwn(visit, query) : { items: [], next: undefined };
  // Collaborators can attach shared dependencies to the suites that they work on.
  const shared = listSharedDependencies(visit.services.db, visit.caller.accountId, SHARED_SHOWN).map(row =>
    present(visit.services, row),
  );
  const create = linkButton(NEW, 'New dependency', 'primary');
  const isEmpty = own.items.length + shared.length === 0;
  return {
    title: 'Dependencies',
    section: 'dependencies',
    styles: ['dependency.css'],
    scripts: ['project.js'],
    body: html`${renderChanges(visit, `${LIST}/stream`, LIST + visit.url.search)}${pageHead('Dependencies', {
      actions: [
        ...(isEmpty ? [] : [filterBox('dependencies', 'Filter dependencies', query)]),
        ...(isOwner && own.items.length > 0 ? [create] : []),
      ],
    })}
<div id="dependencies" data-live>
${own.items.length > 0 ? ownTable(visit, own.items.filter(matches)) : emptyOwn(isOwner, visit.caller.kind === 'user', create)}
${olderLink(visit.url, own.next, 'Older dependencies')}
<h2 class="later">Shared by others</h2>
${
  shared.length > 0
    ? sharedTable(visit, shared.filter(matches))
    : html`<p class="quiet">No other account shares a dependency. Suites of every account can use a shared dependency.</p>`
}
</div>
<p class="quiet" data-filter-none="dependencies" hidden>No dependency matches.</p>`,
  };
}

/** Follows the account's own dependencies only: shared ones do not change. */
function followDependencies(visit: Visit): Response {
  const own = listOwnDependencies(visit.services.db, visit.caller.accountId, OFFERED);
  return respondChanges(visit, { topics: own.map(({ id }) => `dependency:${id}`), maySee: () => true });
}

const listOwn = (visit: Visit, query: string) =>
  performPage(visit, dependencies.list, query === '' ? 100 : 1000);

const searchTextOf = (record: DependencyRecord) =>
  `${record.name} ${record.description} ${record.prefix}`.toLowerCase();

function emptyOwn(isOwner: boolean, isUser: boolean, create: Html): Html {
  if (isOwner)
    return emptyState({
      title: 'No dependencies yet',
      text: 'A dependency is a library or a program that is compiled once and then mounted into suites: a database, a compiler, a library in a specific version. Create one, upload an archive of its source code, and attach it to a suite.',
      action: create,
    });
  return emptyState({
    title: 'No dependencies of your own',
    text: isUser
      ? 'Your account requires payment before you can use them. Ask your administrator.'
      : 'Your account works on other people’s projects. The owners of those projects manage the dependencies.',
  });
}

function ownTable(visit: Visit, records: readonly DependencyRecord[]): Html {
  return table({
    caption: 'Your dependencies',
    columns: ['Dependency', 'State', 'Archive', 'Artifact', 'Used by'],
    rows: records.map(record => ({
      filterText: searchTextOf(record),
      cells: [
        nameCell(record),
        stateCell(record),
        sizeCell(record.archive_file_size),
        sizeCell(record.artifact?.size ?? null),
        usedBy(visit, record),
      ],
    })),
  });
}

const sizeCell = (bytes: number | null): Html =>
  bytes === null
    ? html`<span class="quiet">none yet</span>`
    : html`<span class="number">${formatSize(bytes)}</span>`;

const stateCell = ({ marketplace_state, outdated, waiting }: DependencyRecord): Html =>
  html`<div>${stateBadge(marketplace_state)}${outdated ? html` <span class="tag">outdated</span>` : ''}${waiting ? html`<div class="second">Number ${waiting.position} in the queue: ${waiting.reason}</div>` : ''}</div>`;

function sharedTable(visit: Visit, records: readonly DependencyRecord[]): Html {
  const rows: Row[] = records.map(record => ({
    filterText: searchTextOf(record),
    cells: [nameCell(record), html`<code>${record.prefix}</code>`, usedBy(visit, record)],
  }));
  return table({
    caption: 'Shared dependencies',
    columns: ['Dependency', 'Prefix', 'Used by'],
    rows,
  });
}

const nameCell = (record: DependencyRecord) =>
  html`<a class="name" href="${LIST}/${record.id_str}">${record.name}</a><div class="second">${record.description || html`<code>${record.prefix}</code>`}</div>`;

function usedBy({ services: { db } }: Visit, record: DependencyRecord): Html {
  const count = listSuitesUsing(db, BigInt(record.id_str)).length;
  if (count === 0) return html`<span class="quiet">no suite</span>`;
  return html`${count} ${count === 1 ? 'suite' : 'suites'}`;
}

function showNewDependency(visit: Visit): View {
  const { panel, values } = startFromRecipe(visit, NEW);
  const form = formTo(visit, NEW, { ...moreSettings, ...values });
  return {
    title: 'New dependency',
    section: 'dependencies',
    styles: ['dependency.css'],
    scripts: ['recipe.js'],
    body: html`${pageHead('New dependency', { parent: { href: LIST, label: 'Dependencies' } })}
${panel}
${renderForm(form, {
  fields: dependencyFields(visit, form),
  submit: html`${submitButton('Create dependency')} ${linkButton(LIST, 'Back')}`,
})}`,
  };
}

/** The fields of "More settings" with their defaults. */
const moreSettings: Record<string, string> = {
  description: '',
  launch_command: '',
  launch_timeout: '',
  environment: '',
  library_path: 'true',
  image: '',
  recompile: 'false',
};

/** The fields to create or edit a dependency. `own` is the one being edited, which cannot relate to itself. */
export function dependencyFields(visit: Visit, form: Form, own?: bigint): Html {
  const { db } = visit.services;
  const choices = [
    ...listOwnDependencies(db, visit.account.id, OFFERED),
    ...listSharedDependencies(db, visit.account.id, OFFERED),
    ...(own === undefined ? [] : listRelated(db, own).filter(({ kept }) => kept !== null)),
  ].filter(({ id }) => id !== own);
  const labelOf = ({ name, prefix, ownerId, shared }: Dependency) =>
    `${name} (${prefix}${ownerId === visit.account.id ? '' : shared ? ', shared by others' : ', no longer shared'})`;
  const isMoreSet =
    Object.entries(moreSettings).some(
      ([name, value]) => !['', value].includes(form.value(name)) || form.errors(name).length > 0,
    ) || form.values(RELATED).some(id => id !== '');
  return html`${textField(form, { name: 'name', label: 'Name', required: true, autofocus: own === undefined, placeholder: 'zlib' })}
${textArea(form, { name: 'command', label: 'Command', rows: 3, required: true, code: true, hint: html`Compiles the source code and installs it under the prefix. It must contain the prefix: <code>./configure --prefix=/srv/dependency &amp;&amp; make &amp;&amp; make install</code>` })}
${textField(form, { name: 'prefix', label: 'Prefix', code: true, placeholder: '/srv/dependency', hint: 'Where the command installs, and where the result is mounted into suites.' })}
${textField(form, { name: 'source', label: 'Source directory', code: true, placeholder: 'zlib-1.3.1', hint: 'The directory inside the archive in which the command runs.' })}
<details class="fold" id="more-settings"${isMoreSet ? html` open` : ''}>
<summary>More settings <span class="hint">launch command, environment, image, related dependencies</span></summary>
${textArea(form, { name: 'description', label: 'Description', rows: 2 })}
${textArea(form, { name: 'launch_command', label: 'Launch command', rows: 2, code: true, hint: 'Runs before each suite that uses the dependency, for example to start a server. It must return: start servers in the background.' })}
${textField(form, { name: 'launch_timeout', label: 'Launch timeout', code: true, placeholder: `${LAUNCH_SECONDS.defaultValue}`, hint: `The time limit for the launch command in seconds, from ${LAUNCH_SECONDS.min} to ${LAUNCH_SECONDS.max}. The default is ${LAUNCH_SECONDS.defaultValue}.` })}
${textArea(form, { name: 'environment', label: 'Environment', rows: 2, code: true, hint: html`Variables that suites and compiles get when they use the dependency: lines of <code>NAME=value</code>, in which <code>$PREFIX</code> is the prefix.` })}
${checkBox(form, { name: 'library_path', label: 'Libraries on LD_LIBRARY_PATH', hint: 'Programs find the shared libraries in the prefix. Turn this off if the libraries conflict with programs of the image, which would load them too.' })}
${imageField(visit.services, form, 'The image in which the command runs.')}
${
  choices.length > 0
    ? html`${checkBoxes(form, {
        name: RELATED,
        label: 'Related dependencies',
        hint: 'Mounted during the compile, and into every suite that uses this dependency.',
        choices: choices.map(one => ({ value: one.id.toString(), label: labelOf(one) })),
      })}
${checkBox(form, { name: 'recompile', label: 'Compile again when a related dependency changes', hint: 'Otherwise it is marked as outdated, and you choose when to compile it again.' })}`
    : ''
}
</details>`;
}
