// A project's front page: where it stands, and the key to install in its repository.

import { html } from 'hono/html';
import { publicKeyOf } from '../store/projects.ts';
import { copyText, factList, pageHead } from './components.ts';
import { page, type Route } from './route.ts';
import { stateBadge } from './state.ts';
import type { View, Visit } from './visit.ts';

export const projectPages: Route[] = [page('/ui/projects/:project_id', showProject)];

function showProject({ services: { db }, found: { project } }: Visit): View {
  return {
    title: project.name,
    section: 'projects',
    state: project.buildState,
    body: html`${pageHead(project.name, {
      above: { href: '/ui/projects', label: 'Projects' },
      below: html`${stateBadge(project.buildState)} ${project.description}`,
    })}
<section class="panel"><h2>Repository</h2>
${factList([['Repository URL', html`<code>${project.repositoryUrl}</code>`]])}
<h3>SSH key</h3>
<p class="hint">Install this public key in the repository as a deploy key. With write access, deploys can push too.</p>
${copyText(publicKeyOf(db, project), 'Copy key')}
</section>`,
  };
}
