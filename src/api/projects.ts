// Project endpoints: records, collaborators and the badge.

import {
  collaboratorShape,
  invitedCollaboratorShape,
  presentCollaborator,
  projectShape,
} from '../contract/records/project.ts';
import { destroyedShape } from '../contract/wire.ts';
import { parseId } from '../domain/id.ts';
import { checkEmail, checkRepositoryUrl } from '../domain/names.ts';
import { refusal } from '../domain/refusal.ts';
import { generateKeyPair } from '../domain/ssh-key.ts';
import { submoduleSettings } from '../domain/submodules.ts';
import { createAccount, createSignInLink, findAccountByEmail } from '../store/accounts.ts';
import { countTestsOfCommit, findNewestFinishedCommit } from '../store/builds.ts';
import { deleteProject } from '../store/cleanup/purge.ts';
import type { Db } from '../store/database/db.ts';
import {
  createCollaborator,
  createProject,
  deleteCollaborator,
  findProject,
  isProjectNameTaken,
  listCollaboratedProjects,
  listCollaborators,
  listVisibleProjects,
  projectRecord,
  updateProject,
} from '../store/projects.ts';
import { renderBadge } from './badge.ts';
import { endpoint, listing } from './endpoint.ts';
import { flag, optional, required, requiredName } from './fields.ts';

const fields = {
  name: requiredName({ doc: "Display name; unique among the owner's projects.", example: 'Website' }),
  repository_url: required({
    doc: 'Where code is fetched from, scp-like, without a protocol.',
    example: 'git@git.example.org:team/website.git',
    check: checkRepositoryUrl,
    maxBytes: 1024,
  }),
  description: optional({ doc: 'Arbitrary text.', example: 'The public website', multiline: true }),
  badge: flag('Whether the badge is visible without credentials.'),
  cancel_superseded: flag('Whether a new build request for a branch cancels older ones for the same branch.'),
  submodules: optional({
    doc: 'Whether to fetch the submodules of a commit (`on`), or also theirs (`recursive`). They are fetched with the key of the project, from SSH and relative addresses only. `off` by default.',
    oneOf: submoduleSettings,
    example: 'on',
  }),
  local_variables: flag(
    'Whether local runs of collaborators get the variables of suites. Any code in a working tree can read them. Those of the owner always get them.',
  ),
};

const signInUrl = (db: Db, baseUrl: string, accountId: bigint) =>
  `${baseUrl}/ui/welcome?link=${createSignInLink(db, accountId)}`;

export const projects = {
  list: endpoint({
    method: 'GET',
    path: '/projects',
    summary: 'Lists the projects that the caller owns or collaborates on',
    access: 'signed in',
    scope: 'projects',
    allowUnpaid: () => true,
    response: { list: projectShape },
    handle: ({ db, caller, page }) => {
      const list = caller.standing === 'payment_required' ? listCollaboratedProjects : listVisibleProjects;
      return listing(page, list(db, caller.accountId, page), project =>
        projectRecord(db, project, caller.accountId),
      );
    },
  }),
  create: endpoint({
    method: 'POST',
    path: '/projects',
    summary: 'Creates a project and the SSH key to install in its repository',
    access: 'users',
    scope: 'projects',
    fields,
    checkTogether: ({ name }, { db, caller }) =>
      name !== undefined && isProjectNameTaken(db, caller.accountId, name)
        ? { name: ['already_exists'] }
        : {},
    response: { record: projectShape, status: 201 },
    handle: ({ db, caller, values }) => {
      const project = createProject(db, {
        ownerId: caller.accountId,
        name: values.name,
        description: values.description ?? '',
        repositoryUrl: values.repository_url,
        badge: values.badge ?? false,
        cancelSuperseded: values.cancel_superseded ?? false,
        submodules: values.submodules ?? 'off',
        localVariables: values.local_variables ?? false,
        keyPair: generateKeyPair('assay'),
      });
      return projectRecord(db, project, caller.accountId);
    },
  }),
  get: endpoint({
    method: 'GET',
    path: '/projects/:project_id',
    summary: 'Returns a project',
    access: 'sees',
    scope: 'projects',
    response: { record: projectShape },
    handle: ({ db, caller, project }) => projectRecord(db, project, caller.accountId),
  }),
  update: endpoint({
    method: 'PUT',
    path: '/projects/:project_id',
    summary: 'Updates the fields that are sent',
    access: 'users',
    scope: 'projects',
    fields,
    checkTogether: ({ name }, { db, project }) =>
      name !== undefined && isProjectNameTaken(db, project.ownerId, name, project)
        ? { name: ['already_exists'] }
        : {},
    response: { record: projectShape },
    handle: ({ db, caller, project, values }) =>
      projectRecord(
        db,
        updateProject(db, project, {
          name: values.name ?? project.name,
          description: values.description ?? project.description,
          repositoryUrl: values.repository_url ?? project.repositoryUrl,
          badge: values.badge ?? project.badge,
          cancelSuperseded: values.cancel_superseded ?? project.cancelSuperseded,
          submodules: values.submodules ?? project.submodules,
          localVariables: values.local_variables ?? project.localVariables,
        }),
        caller.accountId,
      ),
  }),
  delete: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id',
    summary: 'Deletes a project and everything in it',
    access: 'users',
    scope: 'projects',
    response: { record: destroyedShape },
    handle: ({ db, project }) => {
      deleteProject(db, project.id);
      return { destroyed: true };
    },
  }),
  listCollaborators: endpoint({
    method: 'GET',
    path: '/projects/:project_id/collaborators',
    summary: "Lists the project's collaborators",
    access: 'sees',
    scope: 'projects',
    response: { list: collaboratorShape },
    handle: ({ db, project, page }) =>
      listing(page, listCollaborators(db, project.id, page), presentCollaborator),
  }),
  addCollaborator: endpoint({
    method: 'POST',
    path: '/projects/:project_id/collaborators',
    summary:
      'Adds a collaborator. If the email has no account, creates one and returns a one-time sign-in link',
    access: 'users',
    scope: 'projects',
    fields: { email: required({ doc: 'Email of the collaborator.', check: checkEmail }) },
    response: { record: invitedCollaboratorShape, status: 201 },
    handle: ({ db, baseUrl, project, caller, values }) =>
      db.write(() => {
        if (values.email.toLowerCase() === caller.email) throw refusal('already_exists', 'email');
        const known = findAccountByEmail(db, values.email);
        const account =
          known ??
          createAccount(db, {
            email: values.email,
            kind: 'collaborator',
            admin: false,
            passwordHash: null,
            apiKey: null,
            invitedById: caller.accountId,
          });
        const id = createCollaborator(db, project.id, account.id);
        return {
          ...presentCollaborator({ id, email: account.email }),
          ...(account.invitedById === caller.accountId && {
            sign_in_url: signInUrl(db, baseUrl, account.id),
          }),
        };
      }),
  }),
  renewInvitation: endpoint({
    method: 'POST',
    path: '/projects/:project_id/collaborators/:collaborator_id/invitation',
    summary:
      'Creates a new sign-in link for a collaborator whom the caller invited and who has no password yet; earlier links stop working',
    access: 'users',
    scope: 'projects',
    response: { record: invitedCollaboratorShape, status: 201 },
    handle: ({ db, baseUrl, caller, collaborator }) => {
      if (collaborator.invitedById !== caller.accountId) throw refusal('not_found');
      return {
        ...presentCollaborator(collaborator),
        sign_in_url: signInUrl(db, baseUrl, collaborator.accountId),
      };
    },
  }),
  removeCollaborator: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id/collaborators/:collaborator_id',
    summary: 'Removes a collaborator and ends its open streams',
    access: 'users',
    scope: 'projects',
    response: { record: destroyedShape },
    handle: ({ db, collaborator }) => {
      deleteCollaborator(db, collaborator);
      return { destroyed: true };
    },
  }),
  badge: endpoint({
    method: 'GET',
    path: '/projects/:project_id/badge.svg',
    summary:
      'Returns an image with the state of the newest finished commit, if the project has its badge enabled',
    access: 'anyone',
    scope: undefined,
    query: { branch: optional({ doc: 'Only commits on this branch.' }) },
    response: { media: 'image/svg+xml', description: 'The badge.' },
    handle: ({ db, params, query }) => {
      const id = parseId(params.project_id ?? '');
      const project = id === undefined ? undefined : findProject(db, id);
      if (!project?.badge) throw refusal('not_found');
      const commit = findNewestFinishedCommit(db, project.id, query.branch);
      const tests = commit && countTestsOfCommit(db, commit.id);
      return new Response(renderBadge(commit?.buildState ?? 'unknown', tests), {
        headers: {
          'content-type': 'image/svg+xml; charset=utf-8',
          'cache-control': 'no-cache, max-age=0',
          'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'",
          'x-content-type-options': 'nosniff',
        },
      });
    },
  }),
};
