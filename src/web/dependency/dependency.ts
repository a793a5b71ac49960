// The page of a dependency: its state, archive, live compile log and users, and its forms to edit, share and delete it.

import { html } from 'hono/html';
import { dependencies } from '../../api/dependencies.ts';
import { followDependency } from '../../api/firehose.ts';
import type { SentFields } from '../../api/http/body.ts';
import { suites } from '../../api/suites.ts';
import { LAUNCH_SECONDS, marketplaceState, UNFINISHED_COMPILES } from '../../domain/dependency.ts';
import { refusal } from '../../domain/refusal.ts';
import { findArtifact } from '../../store/artifacts.ts';
import { dependencyLogPath } from '../../store/data/paths.ts';
import { type Dependency, findDependency } from '../../store/dependencies.ts';
import {
  canCompileAgain,
  countUsesByOthers,
  dependencyRecord,
  isOutdated,
  listChangedRelated,
  listDependents,
  listRelated,
  listRelating,
  listSuitesUsing,
} from '../../store/dependency-use.ts';
import { findVisibleProject, listVisibleProjects } from '../../store/projects.ts';
import { listSuiteNames } from '../../store/suites.ts';
import {
  countOf,
  formatDuration,
  formatSize,
  linkButton,
  pageHead,
  propertyList,
  relativeTime,
} from '../frame/components.ts';
import { errorMessage } from '../frame/error-text.ts';
import { actionButton, formTo, renderForm, selectField, submitButton } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { respondChanges } from '../frame/page-stream.ts';
import { action, form, orShowAgain, page, type Route, upload } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import { type Html, perform, type View, type Visit } from '../frame/visit.ts';
import {
  logScripts,
  logStyles,
  logView,
  respondLogStream,
  respondLogTimes,
  respondRawLog,
} from '../project/log-view.ts';
import { dependencyFields } from './dependencies.ts';
import { renderProgress } from './progress.ts';

type DependencyVisit = Visit<'dependency'>;

const PATH = '/ui/dependencies/:dependency_id';
const OFFERED = { limit: 100, before: undefined };
const SUITES_OFFERED = 500;
const NO_OUTPUT_YET = 'The log appears here as soon as the compile prints something.';

export const dependencyPages: Route[] = [
  page(PATH, showDependency),
  page(`${PATH}/edit`, showEdit),
  form(`${PATH}/edit`, (visit, sent) => orShowAgain(visit, sent, showEdit, () => save(visit, sent))),
  upload(`${PATH}/archive`, dependencies.upload, {
    fieldName: 'archive',
    showForm: showDependency,
    done: visit => ({ to: hrefOf(visit), message: 'Archive uploaded. It is waiting to be compiled.' }),
  }),
  action(`${PATH}/compile`, dependencies.compile, {
    showForm: showDependency,
    done: visit => ({ to: hrefOf(visit) }),
  }),
  action(`${PATH}/compile_dependents`, dependencies.compileDependents, {
    showForm: showDependency,
    done: (visit, started) => ({
      to: hrefOf(visit),
      message: `Compiling ${listing.format(started.map(({ name }) => name))} again, in this order.`,
    }),
  }),
  form(`${PATH}/attach`, (visit, sent) =>
    orShowAgain(visit, sent, showDependency, () => attach(visit, String(sent.get('suite') ?? ''))),
  ),
  action(`${PATH}/cancel`, dependencies.cancel, {
    showForm: showDependency,
    done: visit => ({ to: hrefOf(visit) }),
  }),
  action(`${PATH}/share`, dependencies.share, {
    showForm: showDependency,
    done: visit => ({ to: hrefOf(visit), message: 'Shared. Every account can use it now.' }),
  }),
  action(`${PATH}/unshare`, dependencies.unshare, {
    showForm: showDependency,
    done: visit => ({ to: hrefOf(visit), message: 'No longer shared. Only you can attach it.' }),
  }),
  action(`${PATH}/delete`, dependencies.delete, {
    showForm: showEdit,
    done: ({ found }) => ({
      to: '/ui/dependencies',
      message: `Dependency ${found.dependency.name} deleted.`,
    }),
  }),
  page(`${PATH}/log`, visit => respondRawLog(visit, dependencies.log, fileName(visit.found.dependency))),
  page(`${PATH}/stream`, visit => {
    const { services, found } = visit;
    requireOwner(visit);
    return respondLogStream(
      visit,
      followDependency(services, found.dependency.id),
      caller => findDependency(services.db, found.dependency.id)?.ownerId === caller.accountId,
    );
  }),
  page(`${PATH}/changes/stream`, visit => {
    const { services, found } = visit;
    requireOwner(visit);
    const read = () => findDependency(services.db, found.dependency.id);
    return respondChanges(visit, {
      topics: [`dependency:${found.dependency.id}`],
      maySee: caller => read()?.ownerId === caller.accountId,
      payload: () => {
        const now = read();
        return now && { is_unfinished: isUnfinished(now), run: now.startedAt };
      },
    });
  }),
  page(`${PATH}/times`, visit => {
    requireOwner(visit);
    return respondLogTimes(visit, logPathOf(visit));
  }),
];

const hrefOf = ({ found }: DependencyVisit, rest = '') => `/ui/dependencies/${found.dependency.id}${rest}`;
const fileName = ({ id }: Dependency) => `dependency-${id}.log`;
const logPathOf = ({ services, found }: DependencyVisit) =>
  dependencyLogPath(services.dataDirectory, found.dependency.id);
const isOwner = ({ caller, found }: DependencyVisit) =>
  caller.kind === 'user' && found.dependency.ownerId === caller.accountId;
const isUnfinished = ({ compileState }: Dependency) => UNFINISHED_COMPILES.includes(compileState);

/** Only the owner may see logs and edit. */
function requireOwner(visit: DependencyVisit): void {
  if (!isOwner(visit)) throw refusal('not_found');
}

async function showDependency(visit: DependencyVisit): Promise<View> {
  const { dependency } = visit.found;
  const state = marketplaceState(dependency);
  const isOwn = isOwner(visit);
  const isPending = isUnfinished(dependency) || dependency.archiveHash === null;
  const isHeadOnly = visit.url.searchParams.get('part') === 'head';
  return {
    title: dependency.name,
    section: 'dependencies',
    state,
    styles: [...logStyles, 'dependency.css'],
    scripts: isOwn ? [...logScripts, 'upload.js'] : [],
    body: html`<div id="dependency-head" data-live>${renderHead(visit, state)}</div>
${isOwn ? html`<div id="dependency-progress" data-live>${renderProgress(dependency, visit.services.db.now(), visit.services.waitingCompile(dependency))}</div>` : ''}
${isOwn ? html`<div id="dependency-upload" data-live>${renderUpload(visit)}</div>` : ''}
<div class="columns" id="dependency-details" data-live>
<section class="panel"><h2>Configuration</h2>${renderConfiguration(visit)}</section>
<section class="panel"><h2>Used by</h2>${renderUses(visit)}</section>
</div>
${
  isOwn && !isHeadOnly
    ? await logView({
        base: hrefOf(visit),
        path: logPathOf(visit),
        state,
        isLive: isPending,
        fileName: fileName(dependency),
        empty: isPending ? NO_OUTPUT_YET : 'The compile printed nothing.',
        again: { href: hrefOf(visit, '/changes/stream'), empty: NO_OUTPUT_YET },
      })
    : ''
}`,
  };
}

function renderHead(visit: DependencyVisit, state: string): Html {
  const { found, services } = visit;
  const { dependency } = found;
  const isOwn = isOwner(visit);
  const { startedAt, finishedAt } = dependency;
  const took =
    startedAt !== null && finishedAt !== null && !isUnfinished(dependency)
      ? html`<span>${dependency.compileState === 'compiled' ? 'compiled in' : 'after'} ${formatDuration(finishedAt - startedAt)}, ${relativeTime(finishedAt, services.db.now())}</span>`
      : '';
  return html`${pageHead(dependency.name, {
    parent: { href: '/ui/dependencies', label: 'Dependencies' },
    actions: isOwn ? headButtons(visit) : [],
    subtitle: html`${stateBadge(state)} ${isOwn ? took : html`<span class="tag">shared by others</span>`} ${renderSizes(visit)}`,
  })}
${dependency.description ? html`<p class="lead">${dependency.description}</p>` : ''}
${isOwn && dependency.error !== null ? html`<p class="flash failed"><span>${dependency.error}</span> <a href="#log-title">Read the log</a>${dependency.artifactHash === null ? '' : '. Suites still use the last successful compile.'}</p>` : ''}
${isOwn ? renderOutdated(visit) : ''}`;
}

/** Says which related dependencies have another artifact than the one it was compiled with. */
function renderOutdated(visit: DependencyVisit): Html | string {
  const { dependency } = visit.found;
  const { db } = visit.services;
  if (isUnfinished(dependency) || !isOutdated(db, dependency)) return '';
  const changed = listChangedRelated(db, dependency);
  return html`<p class="flash note"><strong>Outdated.</strong> ${changed.length > 0 ? html`${linksTo(visit, changed)} ${changed.length === 1 ? 'has' : 'have'}` : 'What it relates to has'} changed since it was compiled. Compile it again to use the new ${changed.length > 1 ? 'versions' : 'version'}.</p>`;
}

function renderSizes(visit: DependencyVisit): Html {
  const { services, found } = visit;
  const { archiveFileSize: archiveBytes, artifactHash } = found.dependency;
  const artifact = artifactHash === null ? undefined : findArtifact(services.db, artifactHash);
  return html`${archiveBytes === null ? '' : html`<span>archive ${formatSize(archiveBytes)}</span>`} ${
    artifact
      ? html`<span>artifact ${formatSize(artifact.sizeBytes)}</span> <a href="${hrefOf(visit, '/files')}">${artifact.files === null ? 'Browse files' : `Browse ${countOf(artifact.files, 'file')}`}</a>`
      : ''
  }`;
}

function headButtons(visit: DependencyVisit): Html[] {
  const { dependency } = visit.found;
  const { db } = visit.services;
  const button = (rest: string, label: string, options = {}) =>
    actionButton(formTo(visit, hrefOf(visit, rest)), label, options);
  return [
    ...(isUnfinished(dependency) && !dependency.cancelRequested
      ? [
          button('/cancel', 'Cancel', {
            tone: 'danger',
            confirm: 'Cancel this compile? The last successful compile stays in use.',
          }),
        ]
      : []),
    ...(!isUnfinished(dependency) && dependency.archiveHash !== null
      ? [
          button('/compile', 'Compile again', isOutdated(db, dependency) ? { tone: 'primary' } : {}),
          ...(dependency.compileState === 'compiled' ? [compileFromScratch(visit)] : []),
        ]
      : []),
    ...(!dependency.shared && dependency.artifactHash !== null
      ? [button('/share', 'Share', { confirm: 'Let every account on this server use this dependency?' })]
      : []),
    ...(dependency.shared
      ? [button('/unshare', 'Stop sharing', unshareQuestion(countUsesByOthers(db, dependency)))]
      : []),
    linkButton(hrefOf(visit, '/edit'), 'Edit'),
  ];
}

/** Unlike “Compile again”, it does not use an earlier compile of the same archive. */
const compileFromScratch = (visit: DependencyVisit): Html =>
  renderForm(formTo(visit, hrefOf(visit, '/compile')), {
    className: 'inline',
    fields: html`<input type="hidden" name="force" value="true">`,
    submit: submitButton('Compile from scratch', 'plain'),
  });

/** A plain form; upload.js sends it with a progress bar. It is folded once there is an archive. */
function renderUpload(visit: DependencyVisit): Html {
  const { dependency } = visit.found;
  if (dependency.compileState === 'compiling')
    return html`<p class="panel quiet">You can upload another archive when this compile has finished.</p>`;
  const form = formTo(visit, hrefOf(visit, '/archive'));
  const errors = [
    ...form.errors('archive').map(code => errorMessage('archive', code)),
    ...form.otherErrors(),
  ];
  const isFirst = dependency.archiveHash === null;
  const fields = html`<form method="post" action="${form.action}" enctype="multipart/form-data" data-upload>
<input type="hidden" name="csrf" value="${form.csrf}">
<div class="field${errors.length > 0 ? ' wrong' : ''}">
<div class="label"><label for="archive">${isFirst ? 'Archive of the source code' : 'New archive of the source code'}</label></div>
<p class="hint" id="archive-hint">A tar (plain, gzip, bzip2, xz or zstd) or zip of any size. It is compiled after the upload${dependency.artifactHash === null ? '' : '. Until then the last successful compile stays in use'}.</p>
<input id="archive" name="archive" type="file" required aria-describedby="archive-hint archive-error">
<p class="error" id="archive-error" role="alert"${errors.length > 0 ? '' : html` hidden`}>${errors.join(' ')}</p>
</div>
<div class="upload-progress" data-upload-progress hidden><progress max="1" value="0" aria-label="Upload"></progress> <span class="number" role="status" data-upload-words></span> <span class="number quiet" data-upload-speed></span> <button class="button plain" type="button" data-upload-stop>Stop</button></div>
<div class="buttons">${submitButton('Upload archive', isFirst ? 'primary' : 'plain')}</div>
</form>`;
  if (isFirst) return html`<div class="panel">${fields}</div>`;
  return html`<details class="panel fold" id="upload"${errors.length > 0 ? html` open` : ''}><summary>Upload another archive</summary>
${fields}</details>`;
}

function renderConfiguration(visit: DependencyVisit): Html {
  const { dependency } = visit.found;
  const { db } = visit.services;
  const related = listRelated(db, dependency.id);
  const code = (text: string) => text && html`<code class="lines">${text}</code>`;
  const { archiveFileSize: size, archiveContentType: type, launchSeconds } = dependency;
  return propertyList([
    ['Command', code(dependency.command)],
    ['Prefix', code(dependency.prefix)],
    ['Source directory', code(dependency.source)],
    ['Launch command', code(dependency.launchCommand)],
    ['Launch timeout', launchSeconds === LAUNCH_SECONDS.defaultValue ? '' : `${launchSeconds} s`],
    ['Environment', code(dependency.environment)],
    ['LD_LIBRARY_PATH', dependency.libraryPath ? '' : 'without its libraries'],
    ['Image', code(dependency.image ?? '')],
    ['Related', related.length > 0 ? linksTo(visit, related) : ''],
    ['Recompile', dependency.recompile ? 'when a related dependency changes' : ''],
    ['Archive', size === null ? '' : html`${formatSize(size)} <span class="quiet">${type ?? ''}</span>`],
  ]);
}

/** Names of dependencies, linked if the visitor can see them. */
function linksTo({ caller }: DependencyVisit, some: readonly Dependency[]): Html {
  return html`${some.map(
    (one, at) =>
      html`${at > 0 ? ', ' : ''}${one.shared || one.ownerId === caller.accountId ? html`<a href="/ui/dependencies/${one.id}">${one.name}</a>` : one.name}`,
  )}`;
}

/** The suites that the visitor can see, and the number of other ones. */
function renderUses(visit: DependencyVisit): Html {
  const { services, found, caller } = visit;
  const all = listSuitesUsing(services.db, found.dependency.id);
  const seen = all.filter(({ projectId }) => findVisibleProject(services.db, caller.accountId, projectId));
  const relating = listRelating(services.db, found.dependency.id).filter(
    one => one.shared || one.ownerId === caller.accountId,
  );
  const others = all.length - seen.length;
  if (all.length + relating.length === 0)
    return html`<p class="quiet">No suite uses this dependency yet.</p>${renderAttach(visit, all)}`;
  return html`<ul class="plain-list">${seen.map(
    use =>
      html`<li><a href="/ui/projects/${use.projectId}/suites/${use.suiteId}">${use.suiteName}</a> <span class="quiet">of ${use.projectName}</span></li>`,
  )}
${relating.length > 0 ? html`<li>${linksTo(visit, relating)} <span class="quiet">${relating.length === 1 ? 'relates' : 'relate'} to it</span></li>` : ''}
${others > 0 ? html`<li class="quiet">${countOf(others, 'suite')} of other accounts</li>` : ''}</ul>
${isOwner(visit) ? renderOutdatedDependents(visit) : ''}
${renderAttach(visit, all)}`;
}

/** Offers the suites that can use it and do not yet. */
function renderAttach(visit: DependencyVisit, uses: readonly { suiteId: bigint }[]): Html | string {
  const { services, found, caller } = visit;
  const using = new Set(uses.map(({ suiteId }) => suiteId));
  const offered = listVisibleProjects(services.db, caller.accountId, OFFERED)
    .filter(({ ownerId }) => found.dependency.shared || ownerId === found.dependency.ownerId)
    .flatMap(project =>
      listSuiteNames(services.db, project.id).map(suite => ({
        id: suite.id,
        value: `${project.id}/${suite.id}`,
        label: `${suite.name} of ${project.name}`,
      })),
    )
    .filter(({ id }) => !using.has(id))
    .slice(0, SUITES_OFFERED);
  if (offered.length === 0)
    return html`<p class="hint">Suites that use it are attached here. <a href="/ui/projects">Go to projects</a></p>`;
  const form = formTo(visit, hrefOf(visit, '/attach'));
  return renderForm(form, {
    className: 'row',
    fields: selectField(form, {
      name: 'suite',
      label: 'Attach to a suite',
      required: true,
      choices: [{ value: '', label: 'Choose one' }, ...offered],
    }),
    submit: submitButton('Attach', 'plain'),
  });
}

async function attach(visit: DependencyVisit, suite: string): Promise<Response> {
  const [project_id = '', suite_id = ''] = suite.split('/');
  if (suite_id === '') throw refusal('is_blank', 'suite');
  const { dependency } = visit.found;
  await perform(visit, suites.attachDependency, {
    params: { project_id, suite_id },
    sent: new Map([['dependency_id', dependency.id.toString()]]),
  });
  return respondRedirect(hrefOf(visit), { message: 'Attached. The next build of the suite uses it.' });
}

/** The owner's dependencies that relate to it and that another compile would change. */
function renderOutdatedDependents(visit: DependencyVisit): Html | string {
  const { dependency } = visit.found;
  const { db } = visit.services;
  const outdated = listDependents(db, dependency.id).filter(
    one => one.ownerId === dependency.ownerId && canCompileAgain(db, one),
  );
  if (outdated.length === 0) return '';
  return html`<p>${linksTo(visit, outdated)} ${outdated.length === 1 ? 'is' : 'are'} not compiled with its present version.</p>
${actionButton(formTo(visit, hrefOf(visit, '/compile_dependents')), 'Compile dependents')}`;
}

/** Asks only if other accounts use it. */
function unshareQuestion(uses: ReturnType<typeof countUsesByOthers>): { confirm?: string } {
  const counts = [
    ...(uses.suites > 0 ? [countOf(uses.suites, 'suite')] : []),
    ...(uses.dependencies > 0
      ? [`${uses.dependencies} ${uses.dependencies === 1 ? 'dependency' : 'dependencies'}`]
      : []),
  ];
  if (counts.length === 0) return {};
  const verb = uses.suites + uses.dependencies === 1 ? 'uses it and keeps' : 'use it and keep';
  return {
    confirm: `Stop sharing it? ${counts.join(' and ')} of other accounts ${verb} the present version.`,
  };
}

function renderDelete(visit: DependencyVisit): Html {
  const { dependency } = visit.found;
  const { db } = visit.services;
  const isUsed = listSuitesUsing(db, dependency.id).length + listRelating(db, dependency.id).length > 0;
  return html`<section class="panel danger"><h2>Delete this dependency</h2>
${
  isUsed
    ? html`<p>This dependency is in use. First detach it from all suites and related dependencies.</p>`
    : html`<p>This also deletes its archive and the compiled files.</p>${actionButton(formTo(visit, hrefOf(visit, '/delete')), 'Delete', { tone: 'danger', confirm: `Delete ${dependency.name} and its archive?` })}`
}</section>`;
}

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
      : ` The new ${listing.format(labels)} ${isOne ? 'takes' : 'take'} effect with the next ${next}.`;
  });
  return `Saved.${after.archive_file_size === null ? '' : sentences.join('')}`;
}

const listing = new Intl.ListFormat('en');
