// The first steps of a new project: install the key, create a suite, start a build. Hidden once all are done.

import { html } from 'hono/html';
import { listBuildRequests, listCommits } from '../../store/builds.ts';
import { publicKeyOf } from '../../store/projects.ts';
import { listSuites } from '../../store/suites.ts';
import { copyText, linkButton } from '../frame/components.ts';
import { stateBadge } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';
import { type ProjectVisit, projectPath } from './frame.ts';

const newest = { limit: 1, before: undefined };

export function renderSteps(visit: ProjectVisit): Html | string {
  const { services, found } = visit;
  const { db } = services;
  const { project } = found;
  const hasCommit = listCommits(db, project.id, newest).length > 0;
  const hasSuite = listSuites(db, project.id, newest).length > 0;
  if (hasCommit && hasSuite) return '';
  const [request] = listBuildRequests(db, project.id, newest, { local: false });
  const steps: [title: string, done: boolean, what: Html][] = [
    [
      'Install the project’s key in the repository',
      hasCommit,
      html`<p>Copy this public key and add it where <code>${project.repositoryUrl}</code> is hosted, as a deploy key of the repository. Deploys need write access.</p>${copyText(publicKeyOf(db, project), 'Copy key')}`,
    ],
    [
      'Create a suite',
      hasSuite,
      html`<p>A suite is a command that tests a commit, such as <code>make check</code>.</p>${linkButton(projectPath(visit, '/suites/new'), 'New suite', 'primary')}`,
    ],
    [
      'Start a build',
      hasCommit,
      request?.error
        ? html`<p>The last build request could not fetch a commit: ${request.error}</p>`
        : html`<p>Enter a branch, a tag or a commit below. It is fetched, and its suites run.</p>`,
    ],
  ];
  return html`<section class="steps panel" aria-labelledby="steps-head"><h2 id="steps-head">Three steps to the first build</h2>
<ol>${steps.map(
    ([title, done, what]) =>
      html`<li class="${done ? 'done' : 'open'}"><h3>${title}${done ? html` ${stateBadge('done')}` : ''}</h3>${done ? '' : what}</li>`,
  )}</ol></section>`;
}
