// The layout that all pages of a project share: heading, tabs, and the stream that keeps a page up to date.

import { html } from 'hono/html';
import { eventTypes } from '../../contract/events.ts';
import { lastEventId } from '../../store/events.ts';
import { listCommitHeads } from '../../store/overview.ts';
import { navItem, pageHead } from '../frame/components.ts';
import { renderChanges } from '../frame/page-stream.ts';
import { stateBadge } from '../frame/state.ts';
import type { Html, View, Visit } from '../frame/visit.ts';

export type ProjectVisit = Visit<'project'>;
export type SuiteVisit = Visit<'project' | 'suite'>;

const COMMITS_OFFERED = 50;

type Tab = 'overview' | 'suites' | 'triggers' | 'deploys' | 'notifications' | 'collaborators' | 'settings';

const tabs: [tab: Tab, path: string, label: string][] = [
  ['overview', '', 'Overview'],
  ['suites', '/suites', 'Suites'],
  ['triggers', '/triggers', 'Triggers'],
  ['deploys', '/deploys', 'Deploys'],
  ['notifications', '/notifications', 'Notifications'],
  ['collaborators', '/collaborators', 'Collaborators'],
  ['settings', '/settings', 'Settings'],
];

export const projectPath = ({ found: { project } }: ProjectVisit, rest = '') =>
  `/ui/projects/${project.id}${rest}`;

export const suitePath = (visit: SuiteVisit, rest = '') =>
  projectPath(visit, `/suites/${visit.found.suite.id}${rest}`);

export const isOwner = ({ found: { project }, caller }: ProjectVisit) =>
  caller.kind === 'user' && project.ownerId === caller.accountId;

export function projectView(
  visit: ProjectVisit,
  options: {
    tab: Tab;
    body: Html;
    /** Makes this a subpage of the tab, with its own heading. */
    subpage?: {
      heading: string;
      /** What the page is part of, if not of the tab itself. */
      parent?: { href: string; label: string };
      title?: string;
      subtitle?: Html;
      actions?: Html;
      state?: string;
    };
    /** The page's own address. Its `data-live` elements are reloaded from there after each event. */
    live?: string;
    /** The path of a stream of changes to follow instead of the project's events. */
    changes?: string;
    scripts?: readonly string[];
    styles?: readonly string[];
  },
): View {
  const { project } = visit.found;
  const { tab, subpage, live, changes, scripts = [], styles = [] } = options;
  const [, path, label] = tabs.find(([one]) => one === tab) ?? [tab, '', tab];
  const state = subpage ? subpage.state : tab === 'overview' ? project.buildState : undefined;
  const shared = isOwner(visit) ? '' : html`<span class="tag">shared with you</span>`;
  const head = subpage
    ? pageHead(subpage.heading, {
        parent: subpage.parent ?? {
          href: projectPath(visit, path),
          label: tab === 'overview' ? project.name : `${project.name}: ${label}`,
        },
        ...(subpage.subtitle && { subtitle: subpage.subtitle }),
        ...(subpage.actions && { actions: subpage.actions }),
      })
    : pageHead(project.name, {
        parent: { href: '/ui/projects', label: 'Projects' },
        subtitle: html`${stateBadge(project.buildState)} <code>${project.repositoryUrl}</code> ${shared}${project.description === '' ? '' : html`<div class="description">${project.description}</div>`}`,
      });
  const title = subpage?.title ?? subpage?.heading ?? (tab === 'overview' ? '' : label);
  return {
    title: [title, project.name].filter(Boolean).join(' · '),
    section: 'projects',
    ...(state !== undefined && { state }),
    styles: ['project.css', 'matrix.css', ...styles],
    scripts: [...(live === undefined ? [] : ['project.js']), ...scripts],
    body: html`<div id="project-head"${live === undefined ? '' : html` data-live`}>${head}</div>
${renderTabs(visit, tab)}
${live === undefined ? '' : changes ? renderChanges(visit, changes, live) : renderEventStream(visit, live)}
${options.body}`,
  };
}

/** Makes project.js reload the page `live` after each event. Starts after the last one that it reflects, so that none is missed. */
export function renderEventStream(visit: ProjectVisit, live: string): Html {
  const after = lastEventId(visit.services.db, visit.found.project.id);
  return html`<div hidden data-stream="${projectPath(visit, `/stream?after=${after}`)}" data-events="${eventTypes.join(' ')}" data-page="${live}"></div>`;
}

function renderTabs(visit: ProjectVisit, tab: Tab): Html {
  const shown = tabs.filter(([one]) => one !== 'settings' || isOwner(visit));
  return html`<nav class="tabs" aria-label="Project"><ul>${shown.map(([one, path, label]) =>
    navItem(projectPath(visit, path), label, one === tab),
  )}</ul></nav>`;
}

export const subjectOf = ({ message }: { message: string }) => message.split('\n', 1)[0] || '(no message)';

/** The newest commits, to choose from. */
export const commitChoices = ({ services: { db }, found: { project } }: ProjectVisit) =>
  listCommitHeads(db, project.id, { limit: COMMITS_OFFERED, before: undefined })
    .slice(0, COMMITS_OFFERED)
    .map(commit => ({
      value: commit.id.toString(),
      label: `${commit.ref.slice(0, 10)} ${subjectOf(commit).slice(0, 80)}`,
    }));

export const shortRef = ({ ref }: { ref: string }) => html`<code>${ref.slice(0, 10)}</code>`;
