// The files of a dependency's artifact: one directory on a page, with the size of everything in it, and downloads.

import { html } from 'hono/html';
import { dependencyFiles, openFiles, plainPath } from '../../api/dependency-files.ts';
import type { ArtifactEntry } from '../../domain/artifact-entry.ts';
import { Refusal, refusal } from '../../domain/refusal.ts';
import { countOf, formatCount } from '../../domain/text/count.ts';
import type { EntryOrder } from '../../store/data/artifact-index.ts';
import { emptyState, formatSize, linkButton, pageHead } from '../frame/components.ts';
import { commonHeaders } from '../frame/headers.ts';
import { page, type Route } from '../frame/route.ts';
import { type Html, perform, type View, type Visit } from '../frame/visit.ts';
import { visibleName } from '../result/artifact-tree.ts';

type DependencyVisit = Visit<'dependency'>;

const PATH = '/ui/dependencies/:dependency_id';
const ROWS_SHOWN = 500;
const BAR_WIDTH = 100;

export const dependencyFilesPages: Route[] = [
  page(`${PATH}/files`, showFiles),
  page(`${PATH}/artifact`, async visit => {
    const path = visit.url.searchParams.get('path');
    const response = await perform(visit, dependencyFiles.download, { query: path === null ? {} : { path } });
    for (const [name, value] of Object.entries(commonHeaders)) response.headers.set(name, value);
    return response;
  }),
];

/** What the page shows: a directory, from an entry on. */
type Shown = { path: string; order: EntryOrder; after?: bigint };

const hrefTo = ({ found }: DependencyVisit, { path, order, after }: Shown) => {
  const query = new URLSearchParams();
  if (path !== '') query.set('path', path);
  if (order === 'size') query.set('sort', order);
  if (after !== undefined) query.set('after', `${after}`);
  return `/ui/dependencies/${found.dependency.id}/files${query.size > 0 ? `?${query}` : ''}`;
};
const downloadHref = ({ found }: DependencyVisit, path: string) =>
  `/ui/dependencies/${found.dependency.id}/artifact${path === '' ? '' : `?path=${encodeURIComponent(path)}`}`;

function readShown({ searchParams }: URL): Shown {
  const after = searchParams.get('after') ?? '';
  return {
    path: plainPath(searchParams.get('path') ?? ''),
    order: searchParams.get('sort') === 'size' ? 'size' : 'name',
    ...(/^\d{1,15}$/.test(after) && { after: BigInt(after) }),
  };
}

async function showFiles(visit: DependencyVisit): Promise<View> {
  const { dependency } = visit.found;
  const shown = readShown(visit.url);
  using index = await openFiles({ ...visit.services, dependency }).catch(ignoreUnavailable);
  if (!index) return filesView(visit, renderUnavailable());
  const directory = index.find(shown.path);
  if (directory?.type !== 'directory') throw refusal('not_found');
  const entries = index.list(directory, { ...shown, limit: ROWS_SHOWN + 1 });
  if (!entries) throw refusal('not_found');
  const rows = entries.slice(0, ROWS_SHOWN);
  const last = entries.length > ROWS_SHOWN ? rows.at(-1) : undefined;
  return filesView(
    visit,
    html`${renderTrail(visit, shown, dependency.prefix)}
<div class="artifact-bar"><p><strong>${formatSize(directory.sizeBytes)}</strong> in ${countOf(directory.files, 'file')}</p>${renderOrders(visit, shown)}</div>
${
  rows.length === 0
    ? html`<p class="quiet">The directory is empty.</p>`
    : html`<ul class="tree sized">${rows.map(entry => renderEntry(visit, shown, entry, directory.sizeBytes))}</ul>`
}
${last ? html`<p class="older"><a class="button plain" href="${hrefTo(visit, { ...shown, after: last.id })}">Next ${formatCount(ROWS_SHOWN)}</a></p>` : ''}`,
  );
}

function filesView(visit: DependencyVisit, body: Html): View {
  const { dependency } = visit.found;
  return {
    title: `Files · ${dependency.name}`,
    section: 'dependencies',
    styles: ['artifacts.css'],
    body: html`${pageHead('Files', {
      parent: { href: `/ui/dependencies/${dependency.id}`, label: dependency.name },
      actions: linkButton(downloadHref(visit, ''), 'Download all as tar'),
    })}
${body}`,
  };
}

/** The index of a large artifact is being made. */
function ignoreUnavailable(error: unknown): undefined {
  if (!(error instanceof Refusal) || error.status === 404) throw error;
}

const renderUnavailable = () =>
  emptyState({
    title: 'The files are being listed',
    text: 'The artifact is large and is being opened for the first time. Reload the page in a few seconds.',
  });

/** The directories above, and the one that is shown. */
function renderTrail(visit: DependencyVisit, { path, order }: Shown, prefix: string): Html {
  if (path === '') return html`<p class="tree-trail"><bdi>${prefix}</bdi> /</p>`;
  const segments = path.split('/');
  const above = segments
    .slice(0, -1)
    .map(
      (segment, at) =>
        html`<a href="${hrefTo(visit, { path: segments.slice(0, at + 1).join('/'), order })}"><bdi>${visibleName(segment)}</bdi></a> / `,
    );
  return html`<p class="tree-trail"><a href="${hrefTo(visit, { path: '', order })}">${prefix}</a> / ${above}<bdi>${visibleName(segments.at(-1) ?? '')}</bdi> /</p>`;
}

function renderOrders(visit: DependencyVisit, { path, order }: Shown): Html {
  const choice = (one: EntryOrder, label: string) =>
    one === order
      ? html`<strong aria-current="true">${label}</strong>`
      : html`<a href="${hrefTo(visit, { path, order: one })}">${label}</a>`;
  return html`<p class="tree-orders">Sort by ${choice('name', 'name')} · ${choice('size', 'size')}</p>`;
}

function renderEntry(visit: DependencyVisit, shown: Shown, entry: ArtifactEntry, totalBytes: number): Html {
  const { order } = shown;
  const path = shown.path === '' ? entry.name : `${shown.path}/${entry.name}`;
  const name = visibleName(entry.name);
  const size = html`${renderBar(entry.sizeBytes, totalBytes)}<span class="tree-size">${formatSize(entry.sizeBytes)}</span>`;
  if (entry.type === 'directory')
    return html`<li class="tree-row"><a href="${hrefTo(visit, { path, order })}"><bdi class="tree-name">${name}/</bdi></a><span class="tree-note">${countOf(entry.files, 'file')}</span>${size}</li>`;
  const target = entry.target === null ? '' : html` → <bdi>${visibleName(entry.target)}</bdi>`;
  const label = html`<span class="tree-name"><bdi>${name}</bdi>${target}</span>`;
  const isDownloadable = entry.type === 'file' || entry.type === 'link';
  return html`<li class="tree-row">${isDownloadable ? html`<a href="${downloadHref(visit, path)}" download>${label}</a>` : label}<span class="tree-note">${noteOf(entry)}</span>${size}</li>`;
}

const EXECUTABLE = 0o111;

function noteOf({ type, mode }: ArtifactEntry): string {
  if (type === 'file') return (mode & EXECUTABLE) === 0 ? '' : 'executable';
  return { link: 'hard link', symlink: 'link', fifo: 'pipe', directory: '' }[type];
}

/** The share of the directory's size. */
function renderBar(sizeBytes: number, totalBytes: number): Html {
  const width = totalBytes === 0 ? 0 : (BAR_WIDTH * sizeBytes) / totalBytes;
  return html`<svg class="tree-bar" viewBox="0 0 ${BAR_WIDTH} 1" preserveAspectRatio="none" aria-hidden="true"><rect width="${width.toFixed(1)}" height="1"/></svg>`;
}
