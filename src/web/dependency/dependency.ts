// The page of a dependency: its state, archive, live compile log and users, and its forms to upload, compile and share it.

import { html } from 'hono/html';
import { dependencies } from '../../api/dependencies.ts';
import { followDependency } from '../../api/firehose.ts';
import { errorMessage } from '../../contract/error-text.ts';
import { LAUNCH_SECONDS, marketplaceState, UNFINISHED_COMPILES } from '../../domain/dependency.ts';
import { countOf } from '../../domain/text/count.ts';
import { findArtifact } from '../../store/artifacts.ts';
import { dependencyLogPath } from '../../store/data/paths.ts';
import { type Dependency, findDependency } from '../../store/dependencies.ts';
import {
  countUsesByOthers,
  isOutdated,
  listChangedRelated,
  listRelated,
} from '../../store/dependency-use.ts';
import {
  formatDuration,
  formatSize,
  linkButton,
  pageHead,
  propertyList,
  relativeTime,
} from '../frame/components.ts';
import { actionButton, type Confirmation, formTo, renderForm, submitButton } from '../frame/form.ts';
import { respondChanges } from '../frame/page-stream.ts';
import { action, form, orShowAgain, page, type Route, upload } from '../frame/route.ts';
import { stateBadge } from '../frame/state.ts';
import type { Html, View } from '../frame/visit.ts';
import {
  logScripts,
  logStyles,
  logView,
  respondLogStream,
  respondLogTimes,
  respondRawLog,
} from '../project/log-view.ts';
import { dependencyEditPages } from './edit.ts';
import { type DependencyVisit, hrefOf, isOwner, linksTo, listing, PATH, requireOwner } from './frame.ts';
import { renderProgress } from './progress.ts';
import { attachToSuite, renderUses } from './uses.ts';

const NO_OUTPUT_YET = 'The log appears here as soon as the compile prints something.';

export const dependencyPages: Route[] = [
  page(PATH, showDependency),
  ...dependencyEditPages,
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
      message: `Queued to be compiled again, in this order: ${listing(started.map(({ name }) => name))}.`,
    }),
  }),
  form(`${PATH}/attach`, (visit, sent) =>
    orShowAgain(visit, sent, showDependency, () => attachToSuite(visit, String(sent.get('suite') ?? ''))),
  ),
  action(`${PATH}/cancel`, dependencies.cancel, {
    showForm: showDependency,
    done: visit => ({ to: hrefOf(visit) }),
  }),
  action(`${PATH}/share`, dependencies.share, {
    showForm: showDependency,
    done: visit => ({ to: hrefOf(visit), message: 'Dependency shared. Every account can now use it.' }),
  }),
  action(`${PATH}/unshare`, dependencies.unshare, {
    showForm: showDependency,
    done: visit => ({
      to: hrefOf(visit),
      message: 'Sharing stopped. Only you can attach the dependency now.',
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

const fileName = ({ id }: Dependency) => `dependency-${id}.log`;
const logPathOf = ({ services, found }: DependencyVisit) =>
  dependencyLogPath(services.dataDirectory, found.dependency.id);
const isUnfinished = ({ compileState }: Dependency) => UNFINISHED_COMPILES.includes(compileState);

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
      ? html`<span>${dependency.compileState === 'compiled' ? 'in' : 'after'} ${formatDuration(finishedAt - startedAt)}, ${relativeTime(finishedAt, services.db.now())}</span>`
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
  return html`<p class="flash note"><strong>Outdated.</strong> ${changed.length > 0 ? html`${linksTo(visit, changed)} ${changed.length === 1 ? 'has' : 'have'}` : 'A related dependency has'} changed since it was compiled. Compile it again to use the new ${changed.length > 1 ? 'versions' : 'version'}.</p>`;
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
  const button = (rest: string, label: string, options: Parameters<typeof actionButton>[2] = {}) =>
    actionButton(formTo(visit, hrefOf(visit, rest)), label, options);
  return [
    ...(isUnfinished(dependency) && !dependency.cancelRequested
      ? [
          button('/cancel', 'Cancel', {
            tone: 'danger',
            confirm: 'Stop this compile? The last successful compile stays in use.',
            yes: 'Stop compile',
            no: 'Keep compiling',
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
      ? [
          button('/share', 'Share', {
            confirm: 'Let every account on this server use this dependency?',
            yes: 'Share',
            no: 'Keep private',
          }),
        ]
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
    ['LD_LIBRARY_PATH', dependency.libraryPath ? '' : 'does not include its libraries'],
    ['Image', code(dependency.image ?? '')],
    ['Related', related.length > 0 ? linksTo(visit, related) : ''],
    ['Recompile', dependency.recompile ? 'when a related dependency changes' : ''],
    ['Archive', size === null ? '' : html`${formatSize(size)} <span class="quiet">${type ?? ''}</span>`],
  ]);
}

/** Asks only if other accounts use it. */
function unshareQuestion(uses: ReturnType<typeof countUsesByOthers>): Confirmation {
  const counts = [
    ...(uses.suites > 0 ? [countOf(uses.suites, 'suite')] : []),
    ...(uses.dependencies > 0
      ? [`${uses.dependencies} ${uses.dependencies === 1 ? 'dependency' : 'dependencies'}`]
      : []),
  ];
  if (counts.length === 0) return {};
  const verb = uses.suites + uses.dependencies === 1 ? 'uses it and keeps' : 'use it and keep';
  return {
    confirm: `Stop sharing it? ${counts.join(' and ')} of other accounts ${verb} the current version.`,
    yes: 'Stop sharing',
    no: 'Keep sharing',
  };
}
