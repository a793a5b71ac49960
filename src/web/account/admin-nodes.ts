// Administration: the nodes of the swarm, what runs on each, and why one gets nothing. Only with ENGINE=swarm.

import { html } from 'hono/html';
import type { Services } from '../../api/endpoint.ts';
import { parseId } from '../../domain/id.ts';
import { refusal } from '../../domain/refusal.ts';
import { countOf } from '../../domain/text/count.ts';
import { findDependency, findVisibleDependency } from '../../store/dependencies.ts';
import { findProject, findVisibleProject } from '../../store/projects.ts';
import { findAnyBuild } from '../../store/result/build-artifacts.ts';
import { copyText, emptyState, formatSize, pageHead, relativeTime } from '../frame/components.ts';
import { renderChanges, respondChanges } from '../frame/page-stream.ts';
import { page, type Route } from '../frame/route.ts';
import { stateBadge, stateMark } from '../frame/state.ts';
import type { Html, View, Visit } from '../frame/visit.ts';
import { forAdministrators } from './admin-caches.ts';

type Node = NonNullable<ReturnType<Services['vitals']>['nodes']>[number];

const ADMIN_PATH = '/ui/admin';
const PATH = `${ADMIN_PATH}/nodes`;

export const adminNodePages: Route[] = [
  page(PATH, visit => forAdministrators(visit, showNodes)),
  page(`${PATH}/stream`, visit =>
    forAdministrators(visit, () => {
      getNodes(visit);
      return respondChanges(visit, { topics: ['queue'], maySee: ({ admin }) => admin });
    }),
  ),
];

/** On a single host the page does not exist. */
function getNodes({ services }: Visit): readonly Node[] {
  const { nodes } = services.vitals();
  if (!nodes) throw refusal('not_found');
  return nodes;
}

const isUsable = ({ unusable }: Node) => unusable === undefined;

/** The slots in use, for the administration page. With several machines it links to their page. */
export function renderSlots({ services }: Visit): Html | string {
  const { slots, slotsUsed, compileSlots, nodes } = services.vitals();
  const used = `${slotsUsed} of ${slots} in use`;
  const rest = `, at most ${compileSlots} for compiles`;
  if (!nodes) return used + rest;
  const usable = nodes.filter(isUsable).length;
  const label =
    usable === nodes.length ? countOf(usable, 'node') : `${usable} of ${countOf(nodes.length, 'node')}`;
  return html`<a href="${PATH}">${used} on ${label}</a>${rest}`;
}

function showNodes(visit: Visit): View {
  const nodes = getNodes(visit);
  return {
    title: 'Nodes',
    section: 'admin',
    scripts: ['project.js'],
    styles: ['nodes.css'],
    body: html`${renderChanges(visit, `${PATH}/stream`, PATH)}${pageHead('Nodes', { parent: { href: ADMIN_PATH, label: 'Administration' } })}
<div id="nodes" data-live><p class="lead">${summarize(nodes)}</p>
${nodes.length === 0 ? emptyState({ title: 'No nodes', text: 'The swarm has not reported any node yet.' }) : html`<div class="nodes">${nodes.map((node, at) => renderNode(visit, node, at))}</div>`}</div>
<section class="panel" aria-labelledby="add-node"><h2 id="add-node">Add a node</h2>
<p>Print the script on this server, and run it as root on the new machine. <a href="/ui/manual/swarm">More than one machine</a> in the manual explains every step.</p>
${copyText('assay node script > node.sh', 'Copy')}
<p class="node-hint">Before maintenance, pause a node: what runs there ends normally, and nothing new starts. Draining would kill it.</p>
${copyText('docker node update --availability pause NODE', 'Copy')}</section>`,
  };
}

/** "4 jobs run. 2 nodes with 44 slots take new ones; 3 nodes do not." */
function summarize(nodes: readonly Node[]): string {
  const usable = nodes.filter(isUsable);
  const running = nodes.reduce((sum, node) => sum + node.running.length, 0);
  const slots = usable.reduce((sum, node) => sum + node.slots, 0);
  const others = nodes.length - usable.length;
  return `${countOf(running, 'job')} ${running === 1 ? 'runs' : 'run'}. ${countOf(usable.length, 'node')} with ${countOf(slots, 'slot')} ${usable.length === 1 ? 'takes' : 'take'} new ones${others === 0 ? '' : `; ${countOf(others, 'node')} ${others === 1 ? 'does' : 'do'} not`}.`;
}

function renderNode(visit: Visit, node: Node, at: number): Html {
  const details = [
    node.role === 'manager' ? 'Manager' : '',
    node.address,
    countOf(node.cpus, 'core'),
    formatSize(node.memoryBytes),
    `Docker ${node.engineVersion}`,
  ].filter(Boolean);
  return html`<section class="panel node" aria-labelledby="node-${at}">
<div class="node-head"><h2 id="node-${at}">${node.name}</h2>${stateBadge(badgeOf(node))}</div>
<p class="node-details">${details.map(one => html`<span>${one}</span>`)}</p>
${node.unusable === undefined ? '' : html`<p class="flash note">${node.unusable}${adviceFor(node)}</p>`}
${node.slots + node.running.length === 0 ? '' : renderPicture(node)}
${node.running.length === 0 ? '' : html`<ul class="node-jobs">${node.running.map(owner => html`<li>${renderJob(visit, owner)}</li>`)}</ul>`}
</section>`;
}

/** What an administrator can do about a node that gets no work. */
function adviceFor(node: Node): Html | string {
  const state = badgeOf(node);
  if (state === 'node_paused' || state === 'node_drained')
    return html` To use it again: <code>docker node update --availability active ${node.name}</code>`;
  return state === 'node_down'
    ? html` If it is on: <code>systemctl restart docker</code> there. If it is gone for good: <code>docker node rm ${node.id}</code>`
    : '';
}

function badgeOf({ state, availability, unusable, slots }: Node): string {
  if (state !== 'ready') return 'node_down';
  if (availability !== 'active') return availability === 'pause' ? 'node_paused' : 'node_drained';
  return unusable === undefined ? 'node_ready' : slots === 0 ? 'node_without_slots' : 'node_not_ready';
}

/** One square for each slot; those in use are filled. */
function renderPicture(node: Node): Html {
  const used = node.running.length;
  const squares = Array.from(
    { length: Math.max(node.slots, used) },
    (_, at) => html`<i class="${at < used ? 'used' : isUsable(node) ? 'free' : 'shut'}"></i>`,
  );
  return html`<p class="slots"><span class="slot-squares" aria-hidden="true">${squares}</span> <span>${used} of ${countOf(node.slots, 'slot')} in use</span></p>`;
}

/** An administrator can open only what they own or what is shared with them. Other jobs are plain text. */
function renderJob({ services: { db }, caller }: Visit, { kind, id }: Node['running'][number]): Html {
  const found = parseId(id) ?? 0n;
  if (kind === 'dependency') {
    const dependency = findDependency(db, found);
    const name = `Compile of ${dependency?.name ?? 'a deleted dependency'}`;
    const isVisible = dependency && findVisibleDependency(db, caller.accountId, found);
    return html`${stateMark('compiling')} <span>${isVisible ? html`<a href="/ui/dependencies/${found}">${name}</a>` : name}</span>${since(dependency?.startedAt)}`;
  }
  const build = findAnyBuild(db, found);
  const project = build && findProject(db, build.projectId);
  if (!build || !project) return html`${stateMark('running')} <span>A build that was deleted</span>`;
  const name = html`${build.suiteName} <span class="quiet">${project.name}</span>`;
  const isVisible = findVisibleProject(db, caller.accountId, project.id);
  return html`${stateMark('running')} <span>${isVisible ? html`<a href="/ui/projects/${project.id}/builds/${build.id}">${name}</a>` : name}</span>${since(build.startedAt)}`;
}

const since = (startedAt: number | null | undefined) =>
  startedAt == null ? '' : html`<span class="quiet">${relativeTime(startedAt)}</span>`;
