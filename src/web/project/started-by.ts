// What started a build: a person, or a trigger, with a link to it.

import { html } from 'hono/html';
import { findBuildRequest } from '../../store/builds.ts';
import { findTrigger } from '../../store/trigger/triggers.ts';
import type { Html } from '../frame/visit.ts';
import { type ProjectVisit, projectPath } from './frame.ts';

/** "by push “Main” (ada)" or "by ada@example.org". There is no link to a deleted trigger. */
export function renderStartedBy(visit: ProjectVisit, requestId: bigint): Html | string {
  const { db } = visit.services;
  const projectId = visit.found.project.id;
  const request = findBuildRequest(db, projectId, requestId);
  if (!request) return '';
  const { trigger, triggerId, triggerName, pushedBy, createdBy } = request;
  if (trigger === null) return html`by ${createdBy}`;
  const isThere = triggerId !== null && findTrigger(db, projectId, triggerId) !== undefined;
  const name = `${trigger} “${triggerName ?? ''}”`;
  return html`by ${isThere ? html`<a href="${projectPath(visit, `/triggers/${triggerId}`)}">${name}</a>` : name}${pushedBy === null ? '' : ` (${pushedBy})`}`;
}
