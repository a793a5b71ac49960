// The tab of a build with the artifacts that it produced: a tree, downloads, a viewer for text and images, and the actions.

import { html } from 'hono/html';
import { artifacts } from '../../api/result/artifacts.ts';
import { isFinishedBuild } from '../../domain/build.ts';
import { refusal } from '../../domain/refusal.ts';
import { contentTypeOf, isHtml, isImage } from '../../domain/result/content-type.ts';
import { countOf, formatCount } from '../../domain/text/count.ts';
import type { Build } from '../../store/builds.ts';
import { buildFilesPath } from '../../store/data/paths.ts';
import { findVisibleProject } from '../../store/projects.ts';
import { isNewestOfBranch } from '../../store/result/artifact-retention.ts';
import { type BuildArtifact, listArtifactPaths } from '../../store/result/build-artifacts.ts';
import { findSuite } from '../../store/suites.ts';
import { emptyState, formatSize, linkButton, relativeTime } from '../frame/components.ts';
import { actionButton, formTo } from '../frame/form.ts';
import { commonHeaders } from '../frame/headers.ts';
import { respondRedirect } from '../frame/layout.ts';
import { renderChanges, respondChanges } from '../frame/page-stream.ts';
import { action, page, type Route } from '../frame/route.ts';
import { type Html, perform, type View, type Visit } from '../frame/visit.ts';
import { isOwner } from '../project/frame.ts';
import { plainText } from '../project/log-view.ts';
import {
  baseName,
  chooseShown,
  type Directory,
  type File,
  isDirectory,
  treeOf,
  visibleName,
} from './artifact-tree.ts';
import { type BuildVisit, buildHref, buildView } from './build-frame.ts';
import { fileHref } from './files.ts';

const BUILD = '/projects/:project_id/builds/:build_id';
const ARTIFACT = `${BUILD}/artifacts/:artifact_id`;
/** Files and directories on one page. */
const ROWS_SHOWN = 1_000;
/** How much of a text is shown. */
const TEXT_BYTES = 256 * 1024;
const DAY_MS = 86_400_000;

type ArtifactVisit = Visit<'project' | 'build' | 'artifact'>;

export const artifactsTabPages: Route[] = [
  page(`/ui${BUILD}/artifacts`, showArtifacts),
  page(`/ui${BUILD}/artifacts.zip`, visit => asDownload(perform(visit, artifacts.zip))),
  page(`/ui${BUILD}/artifacts/stream`, visit =>
    respondChanges(visit, {
      topics: [`build:${visit.found.build.id}`],
      maySee: ({ accountId }) => findVisibleProject(visit.services.db, accountId, visit.found.project.id),
    }),
  ),
  page(`/ui${ARTIFACT}`, showArtifact),
  page(`/ui${ARTIFACT}/content`, async visit => {
    const response = await asDownload(perform(visit, artifacts.get));
    // In an <img> element, an image is shown although it is an attachment, and its scripts do not run.
    const { path } = visit.found.artifact;
    if (isImage(path)) response.headers.set('content-type', contentTypeOf(path));
    return response;
  }),
  page(`/ui${ARTIFACT}/open`, ({ services, found, account }) =>
    respondRedirect(fileHref(services, found.artifact, account.id)),
  ),
  action(`/ui${BUILD}/keep`, artifacts.keep, {
    showForm: showArtifacts,
    done: ({ found }) => ({ to: tabHref(found.build), message: 'The artifacts are kept.' }),
  }),
  action(`/ui${BUILD}/unkeep`, artifacts.unkeep, {
    showForm: showArtifacts,
    done: ({ found }) => ({ to: tabHref(found.build), message: 'The artifacts can expire again.' }),
  }),
  action(`/ui${BUILD}/artifacts/delete`, artifacts.delete, {
    showForm: showArtifacts,
    done: ({ found }) => ({ to: tabHref(found.build), message: 'The artifacts were deleted.' }),
  }),
];

const tabHref = (build: Build) => buildHref(build, 'artifacts');
const fileBase = (build: Build, { id }: { id: bigint }) => `${tabHref(build)}/${id}`;
const directoryHref = (build: Build, path: string) =>
  path === '' ? tabHref(build) : `${tabHref(build)}?dir=${encodeURIComponent(path)}`;

async function asDownload(answer: Promise<Response>): Promise<Response> {
  const response = await answer;
  for (const [name, value] of Object.entries(commonHeaders)) response.headers.set(name, value);
  return response;
}

function showArtifacts(visit: BuildVisit): View {
  const { services, found, url } = visit;
  const { build } = found;
  if (build.artifacts === 0) return buildView(visit, { tab: 'artifacts', body: renderNoArtifacts(visit) });
  const path = url.searchParams.get('dir') ?? '';
  const top = treeOf(listArtifactPaths(services.db, build), path);
  if (top.children.length === 0 && path !== '') throw refusal('not_found');
  return buildView(visit, {
    tab: 'artifacts',
    scripts: isFinishedBuild(build.buildState) ? ['project.js'] : [],
    styles: ['artifacts.css'],
    body: html`${isFinishedBuild(build.buildState) ? renderChanges(visit, `${tabHref(build)}/stream`, url.pathname + url.search) : ''}
${renderSummary(visit)}
${path === '' ? '' : renderTrail(build, path, true)}
${renderPage(build, top, Number(url.searchParams.get('from') ?? 0) || 0)}`,
  });
}

function renderSummary(visit: BuildVisit): Html {
  const { build } = visit.found;
  const form = (path: string) => formTo(visit, `${buildHref(build)}/${path}`);
  return html`${build.artifactsTruncated ? html`<p class="flash note">Files were left out because of a limit. The end of the log says which.</p>` : ''}
<div class="artifact-bar"><p><strong>${countOf(build.artifacts, 'file')}</strong>, ${formatSize(build.artifactsBytes)}. ${explainRetention(visit)}</p>
<div class="artifact-actions">${linkButton(`${tabHref(build)}.zip`, 'Download all')}
${build.keep ? actionButton(form('unkeep'), 'Stop keeping') : actionButton(form('keep'), 'Keep')}
${
  isOwner(visit) && isFinishedBuild(build.buildState)
    ? actionButton(form('artifacts/delete'), 'Delete', {
        tone: 'danger',
        confirm: 'Delete all artifacts of this build? Its log and its test results stay.',
        yes: 'Delete artifacts',
        no: 'Keep artifacts',
      })
    : ''
}</div></div>`;
}

function explainRetention({ services, found: { build } }: BuildVisit): Html | string {
  if (build.keep) return 'They are kept until somebody deletes them.';
  if (build.finishedAt === null) return '';
  const endsAt = build.finishedAt + services.artifactsMs;
  const days = Math.round(services.artifactsMs / DAY_MS);
  const isNewest = isNewestOfBranch(services.db, build);
  return html`They are deleted ${endsAt > services.db.now() ? relativeTime(endsAt, services.db.now()) : `after ${days} days`}${isNewest ? ', but not while this is the newest passed build of its branch' : ''}.`;
}

/** From `from` on, at most as many rows as a page has. */
function renderPage(build: Build, top: Directory, from: number): Html {
  const children = top.children.slice(from, from + ROWS_SHOWN);
  const shown = chooseShown({ ...top, children }, ROWS_SHOWN);
  const next = from + ROWS_SHOWN;
  const nextHref = `${tabHref(build)}?dir=${encodeURIComponent(top.path)}&from=${next}`;
  return html`${renderList(build, children, shown)}
${next < top.children.length ? html`<p class="older"><a class="button plain" href="${nextHref}">Next ${formatCount(Math.min(ROWS_SHOWN, top.children.length - next))} of ${formatCount(top.children.length)}</a></p>` : ''}`;
}

function renderList(
  build: Build,
  children: readonly (Directory | File)[],
  shown: ReadonlySet<Directory>,
): Html {
  return html`<ul class="tree">${children.map(child =>
    isDirectory(child)
      ? renderDirectory(build, child, shown, children.length === 1)
      : renderFile(build, child),
  )}</ul>`;
}

/** A directory that does not fit on the page is a link to a page of its own. */
function renderDirectory(
  build: Build,
  directory: Directory,
  shown: ReadonlySet<Directory>,
  isOpen: boolean,
): Html {
  const size = html`<span class="tree-size">${countOf(directory.files, 'file')}, ${formatSize(directory.sizeBytes)}</span>`;
  const name = html`<bdi class="tree-name">${visibleName(directory.name)}/</bdi>`;
  if (!shown.has(directory))
    return html`<li class="tree-row"><a href="${directoryHref(build, directory.path)}">${name}</a>${size}</li>`;
  return html`<li><details id="dir-${encodeURIComponent(directory.path)}"${isOpen ? html` open` : ''}><summary class="tree-row">${name}${size}</summary>${renderList(build, directory.children, shown)}</details></li>`;
}

function renderFile(build: Build, file: File): Html {
  const base = fileBase(build, file);
  const name = visibleName(baseName(file.path));
  return html`<li class="tree-row"><a href="${base}"><bdi class="tree-name">${name}</bdi></a><span class="tree-links">${isHtml(file.path) ? html`<a href="${base}/open" target="_blank" rel="noopener noreferrer" aria-label="Open ${name} in a new tab">Open</a>` : ''}<a href="${base}/content" aria-label="Download ${name}">Download</a></span><span class="tree-size">${formatSize(file.sizeBytes)}</span></li>`;
}

/** The directories above, and the last part of the path. */
function renderTrail(build: Build, path: string, isDirectoryPage: boolean): Html {
  const parts = path.split('/');
  const trail = parts
    .slice(0, -1)
    .map(
      (part, at) =>
        html`<a href="${directoryHref(build, parts.slice(0, at + 1).join('/'))}"><bdi>${visibleName(part)}</bdi></a> / `,
    );
  return html`<p class="tree-trail"><a href="${tabHref(build)}">All artifacts</a> / ${trail}<bdi>${visibleName(parts.at(-1) ?? '')}</bdi>${isDirectoryPage ? ' /' : ''}</p>`;
}

async function showArtifact(visit: ArtifactVisit): Promise<View> {
  const { build, artifact } = visit.found;
  const base = fileBase(build, artifact);
  return {
    ...buildView(visit, {
      tab: 'artifacts',
      styles: ['artifacts.css'],
      body: html`${renderTrail(build, artifact.path, false)}
<div class="artifact-bar"><p><strong>${formatSize(artifact.sizeBytes)}</strong>, <span class="artifact-sum">SHA-256 ${artifact.sha256 ? html`<code>${artifact.sha256}</code>` : 'is being computed'}</span></p>
<div class="artifact-actions">${isHtml(artifact.path) ? html`<a class="button primary" href="${base}/open" target="_blank" rel="noopener noreferrer">Open</a>` : ''}
${linkButton(`${base}/content`, 'Download')}</div></div>
${isImage(artifact.path) ? html`<p class="artifact-image"><img src="${base}/content" alt="${visibleName(baseName(artifact.path))}"></p>` : await renderText(visit, artifact)}`,
    }),
    title: `${visibleName(baseName(artifact.path))} · ${build.suiteName} · ${visit.found.project.name}`,
  };
}

async function renderText({ services, found }: ArtifactVisit, artifact: BuildArtifact): Promise<Html> {
  const bytes = await readBeginning(services, artifact);
  if (bytes === undefined)
    return emptyState({
      title: 'The file is gone',
      text: 'The server has lost it, for example because it was restored from a backup without logs.',
    });
  if (bytes.length === 0) return emptyState({ title: 'The file is empty', text: 'It contains no data.' });
  if (bytes.includes(0))
    return emptyState({
      title: 'Not a text file',
      text: 'The file cannot be shown here. Download it instead.',
    });
  // The end may be half a character.
  const text = new TextDecoder().decode(bytes, { stream: true });
  const note =
    artifact.sizeBytes > TEXT_BYTES
      ? html`<p class="log-note">The first ${formatSize(TEXT_BYTES)} are shown. <a href="${fileBase(found.build, artifact)}/content">Download the file</a> for the rest.</p>`
      : '';
  return html`${note}<pre class="artifact-text" tabindex="0" aria-label="${visibleName(baseName(artifact.path))}">${plainText(text)}</pre>`;
}

/** Undefined if the ZIP file of the build is gone. */
async function readBeginning(
  { dataDirectory, openArtifact }: Visit['services'],
  artifact: BuildArtifact,
): Promise<Buffer | undefined> {
  if (artifact.sizeBytes === 0) return Buffer.alloc(0);
  const end = Math.min(artifact.sizeBytes, TEXT_BYTES) - 1;
  try {
    const content = openArtifact(buildFilesPath(dataDirectory, artifact.buildId), artifact, {
      start: 0,
      end,
    });
    return Buffer.concat(await content.toArray());
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function renderNoArtifacts({ services, found: { project, build } }: BuildVisit): Html {
  if (!isFinishedBuild(build.buildState))
    return emptyState({
      title: 'No artifacts yet',
      text: 'They appear here when the build has finished and its files were collected.',
    });
  const suite = findSuite(services.db, project.id, build.suiteId);
  return emptyState({
    title: 'No artifacts',
    text: html`The build kept no files, or they have expired or were deleted. Let the command write what you want to keep to the directory <code>$ASSAY_ARTIFACTS</code> (<code>/srv/artifacts</code>), or set the artifacts of the suite to files that it writes in the checkout.`,
    ...(suite && {
      action: linkButton(`/ui/projects/${project.id}/suites/${suite.id}/settings`, 'Settings of the suite'),
    }),
  });
}
