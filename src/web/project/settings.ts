// The settings of a project, for its owner: name and repository, SSH key, badge, and deletion.

import { html } from 'hono/html';
import { projects } from '../../api/projects.ts';
import { refusal } from '../../domain/refusal.ts';
import { publicKeyOf } from '../../store/projects.ts';
import { copyText } from '../frame/components.ts';
import {
  checkBox,
  formTo,
  renderForm,
  selectField,
  submitButton,
  textArea,
  textField,
} from '../frame/form.ts';
import { action, page, type Route } from '../frame/route.ts';
import type { Html, View } from '../frame/visit.ts';
import { isOwner, type ProjectVisit, projectPath, projectView } from './frame.ts';

const PATH = '/ui/projects/:project_id/settings';

export const settingsPages: Route[] = [
  page(PATH, showSettings),
  action(PATH, projects.update, {
    showForm: showSettings,
    done: visit => ({ to: projectPath(visit, '/settings'), message: 'Settings saved.' }),
  }),
  action(`${PATH}/badge`, projects.update, {
    showForm: showSettings,
    done: visit => ({ to: projectPath(visit, '/settings#badge'), message: 'Badge saved.' }),
  }),
  action(`${PATH}/delete`, projects.delete, {
    showForm: showSettings,
    prepare: (sent, { found: { project } }) => {
      if (sent.get('confirm') !== project.name) throw refusal('invalid_format', 'confirm');
    },
    done: visit => ({ to: '/ui/projects', message: `Project ${visit.found.project.name} deleted.` }),
  }),
];

function showSettings(visit: ProjectVisit): View {
  if (!isOwner(visit)) throw refusal('unauthorized');
  const { project } = visit.found;
  return projectView(visit, {
    tab: 'settings',
    body: html`<div class="parts">
<section class="panel" aria-labelledby="general"><h2 id="general">Project</h2>${renderGeneral(visit)}</section>
<section class="panel" aria-labelledby="key"><h2 id="key">SSH key</h2>
<p class="hint">Install this public key where <code>${project.repositoryUrl}</code> is hosted, as a deploy key of the repository: in most Git hosts under the repository’s settings, “Deploy keys”; on a plain server as a line of <code>~/.ssh/authorized_keys</code>. Builds need read access only. Repositories that deploys push to must grant it write access.</p>
${copyText(publicKeyOf(visit.services.db, project), 'Copy key')}</section>
<section class="panel" aria-labelledby="badge"><h2 id="badge">Badge</h2>${renderBadgeSettings(visit)}</section>
<section class="panel danger" aria-labelledby="danger"><h2 id="danger">Danger zone</h2>${renderDelete(visit)}</section>
</div>`,
  });
}

const submoduleChoices = [
  { value: 'off', label: 'Off: their directories stay empty' },
  { value: 'on', label: 'On: the repository’s own submodules' },
  { value: 'recursive', label: 'Recursive: also submodules of submodules' },
];

function renderGeneral(visit: ProjectVisit): Html {
  const { project } = visit.found;
  const change = formTo(visit, projectPath(visit, '/settings'), {
    name: project.name,
    description: project.description,
    repository_url: project.repositoryUrl,
    cancel_superseded: String(project.cancelSuperseded),
    submodules: project.submodules,
    local_variables: String(project.localVariables),
  });
  return renderForm(change, {
    fields: html`${textField(change, { name: 'name', label: 'Name', required: true })}
${textArea(change, { name: 'description', label: 'Description', rows: 2 })}
${textField(change, { name: 'repository_url', label: 'Repository URL', required: true, code: true })}
${checkBox(change, { name: 'cancel_superseded', label: 'Cancel superseded builds', hint: 'A new build of a branch cancels its older builds that have not finished.' })}
${selectField(change, { name: 'submodules', label: 'Submodules', required: true, hint: 'Fetched with the project’s key, so their repositories must accept it. SSH and relative addresses only.', choices: submoduleChoices })}
${checkBox(change, { name: 'local_variables', label: 'Variables in local runs', hint: 'With assay run --local, collaborators can run any code, and that code can read the variables of suites. Turn this on only if collaborators may read them. Your own local runs always get the variables.' })}`,
    submit: submitButton('Save settings'),
  });
}

function renderBadgeSettings(visit: ProjectVisit): Html {
  const { services, found } = visit;
  const { id, name, badge } = found.project;
  const picture = `/projects/${id}/badge.svg`;
  const change = formTo(visit, projectPath(visit, '/settings/badge'), { badge: String(badge) });
  const markdown = `[![${name}](${services.baseUrl}${picture})](${services.baseUrl}/ui/projects/${id})`;
  return html`${renderForm(change, {
    fields: checkBox(change, {
      name: 'badge',
      label: 'Show the badge',
      hint: 'Anyone who can reach this server can see the state of the newest commit without signing in.',
    }),
    submit: submitButton('Save badge', 'plain'),
  })}
${badge ? html`<p class="badge"><img src="${picture}" alt="The project’s badge" height="20"></p><h3>Markdown</h3>${copyText(markdown, 'Copy Markdown')}` : ''}`;
}

function renderDelete(visit: ProjectVisit): Html {
  const { name } = visit.found.project;
  const remove = formTo(visit, projectPath(visit, '/settings/delete'));
  return renderForm(remove, {
    fields: html`<p>Deletes the project with its suites, commits, builds, logs, deploys and notifications. This cannot be undone.</p>
${textField(remove, { name: 'confirm', label: `Type “${name}” to confirm`, required: true, autocomplete: 'off' })}`,
    submit: submitButton('Delete project', 'danger'),
  });
}
