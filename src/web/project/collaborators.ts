// The collaborators of a project. Only the project's owner adds and removes them.

import { html } from 'hono/html';
import { projects } from '../../api/projects.ts';
import type { presentCollaborator } from '../../contract/records/project.ts';
import { findAccount } from '../../store/accounts.ts';
import { listInvitedCollaborators } from '../../store/projects.ts';
import { copyText, linkButton, olderLink, table } from '../frame/components.ts';
import { actionButton, formTo, renderForm, submitButton, textField } from '../frame/form.ts';
import { action, page, type Redirect, type Route } from '../frame/route.ts';
import { type Html, performPage, type View } from '../frame/visit.ts';
import { isOwner, type ProjectVisit, projectPath, projectView } from './frame.ts';

const PATH = '/ui/projects/:project_id/collaborators';

type CollaboratorRecord = ReturnType<typeof presentCollaborator>;
type Invited = CollaboratorRecord & { sign_in_url?: string };

export const collaboratorPages: Route[] = [
  page(PATH, showCollaborators),
  action(PATH, projects.addCollaborator, {
    showForm: showCollaborators,
    done: (visit, invited) => showInvited(visit, invited, `${invited.email} added`),
  }),
  action(`${PATH}/:collaborator_id/invitation`, projects.renewInvitation, {
    showForm: showCollaborators,
    done: (visit, invited) => showInvited(visit, invited, `New link for ${invited.email}`),
  }),
  action(`${PATH}/:collaborator_id/delete`, projects.removeCollaborator, {
    showForm: showCollaborators,
    done: visit => ({
      to: projectPath(visit, '/collaborators'),
      message: `${visit.found.collaborator.email} removed.`,
    }),
  }),
];

async function showCollaborators(visit: ProjectVisit): Promise<View> {
  const { items, next } = await performPage(visit, projects.listCollaborators, 100);
  const { db } = visit.services;
  const owner = findAccount(db, visit.found.project.ownerId);
  const invited = listInvitedCollaborators(db, visit.found.project.id, visit.caller.accountId);
  return projectView(visit, {
    tab: 'collaborators',
    body: html`${isOwner(visit) ? html`<section class="panel" aria-labelledby="add-head"><h2 id="add-head">Add a collaborator</h2>${renderAdd(visit)}</section>` : ''}
<section aria-labelledby="collaborators-head"><h2 id="collaborators-head">Collaborators</h2>
<p class="hint">The project belongs to ${owner?.email ?? 'a deleted account'}. Collaborators can see everything in it, start builds, and change suites, deploy strategies and notifications.</p>
${table({
  caption: 'Collaborators',
  columns: isOwner(visit) ? ['Email', 'Actions'] : ['Email'],
  rows: items.map(item => ({
    cells: [item.email, ...(isOwner(visit) ? [renderActions(visit, item, invited)] : [])],
  })),
  empty: {
    title: 'No collaborators yet',
    text: 'Add people by their email address. People without an account get one, with a link to sign in.',
  },
})}
${olderLink(visit.url, next, 'More collaborators')}</section>`,
  });
}

function renderAdd(visit: ProjectVisit): Html {
  const add = formTo(visit, projectPath(visit, '/collaborators'));
  return renderForm(add, {
    fields: textField(add, { name: 'email', label: 'Email', type: 'email', required: true }),
    submit: submitButton('Add collaborator'),
  });
}

function renderActions(
  visit: ProjectVisit,
  { id_str: id, email }: CollaboratorRecord,
  invited: ReadonlySet<bigint>,
): Html {
  const path = projectPath(visit, `/collaborators/${id}`);
  return html`<div class="row">${invited.has(BigInt(id)) ? actionButton(formTo(visit, `${path}/invitation`), 'New link') : ''}${actionButton(
    formTo(visit, `${path}/delete`),
    'Remove',
    {
      tone: 'danger',
      confirm: `Remove ${email} from this project?`,
      yes: 'Remove collaborator',
      no: 'Keep collaborator',
    },
  )}</div>`;
}

/** The link signs in anyone who has it, so it is shown only once, to the owner, who passes it on. */
function showInvited(visit: ProjectVisit, invited: Invited, heading: string): View | Redirect {
  const back = projectPath(visit, '/collaborators');
  if (invited.sign_in_url === undefined) return { to: back, message: `${heading}.` };
  return projectView(visit, {
    tab: 'collaborators',
    subpage: { heading },
    body: html`<div class="panel"><p class="lead">${invited.email} has no password yet. Send them this link to set one. It works once, within 7 days, and is not shown again. Earlier links no longer work.</p>
${copyText(invited.sign_in_url, 'Copy link')}</div>
<p>${linkButton(back, 'Done', 'primary')}</p>`,
  });
}
