// What a build request is for, and what started it: a person, or a trigger, with a link to it.

import { html } from 'hono/html';
import { DETACHED } from '../../domain/names.ts';
import { type BuildRequest, findBuildRequest } from '../../store/builds.ts';
import { findTrigger } from '../../store/trigger/triggers.ts';
import type { Html } from '../frame/visit.ts';
import { type ProjectVisit, projectPath } from './frame.ts';

/** "main", or "working tree of main" for a local run. */
export function renderRequested({ isLocal, ref }: { isLocal: boolean; ref: string }): Html {
  if (!isLocal) return html`<code>${ref}</code>`;
  return ref === DETACHED ? html`working tree` : html`working tree of <code>${ref}</code>`;
}

/** On the pages of a local run: whose it is, and what it means. */
export function renderLocalNotice(request: BuildRequest | undefined): Html | string {
  if (!request?.local) return '';
  return html`<p class="flash note"><strong>Local run by ${request.createdBy}</strong>: ${renderRequested({ isLocal: true, ref: request.commitRef })}. It belongs to no branch, and its result affects nothing else. <a href="/ui/manual/local-runs">More about local runs</a></p>`;
}

/** "push “Main”". */
export const triggerLabel = ({ trigger, triggerName }: Pick<BuildRequest, 'trigger' | 'triggerName'>) =>
  `${trigger} “${triggerName ?? ''}”`;

/** "by push “Main” (ada)" or "by ada@example.org". There is no link to a deleted trigger. */
export function renderStartedBy(visit: ProjectVisit, requestId: bigint): Html | string {
  const { db } = visit.services;
  const projectId = visit.found.project.id;
  const request = findBuildRequest(db, projectId, requestId);
  if (!request) return '';
  const { trigger, triggerId, pushedBy, createdBy } = request;
  if (trigger === null || trigger === 'local') return html`by ${createdBy}`;
  const isThere = triggerId !== null && findTrigger(db, projectId, triggerId) !== undefined;
  const name = triggerLabel(request);
  return html`by ${isThere ? html`<a href="${projectPath(visit, `/triggers/${triggerId}`)}">${name}</a>` : name}${pushedBy === null ? '' : ` (${pushedBy})`}`;
}
