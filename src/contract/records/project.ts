// The records of projects and collaborators: their schemas, and functions that create them from rows.

import type { ProjectState } from '../../domain/build.ts';
import { type SubmoduleSetting, submoduleSettings } from '../../domain/submodules.ts';
import { idPair, ids, record, shape } from '../wire.ts';
import { commitStates } from './build.ts';

export const projectShape = record(
  'Project',
  {
    ...ids,
    name: shape.string('Display name.'),
    description: shape.string('Arbitrary text.'),
    repository_url: shape.string('Where code is fetched from: `<user>@<host>:<path>.git`.'),
    build_state: shape.oneOf(['new', ...commitStates.slice(1)], 'Current state of the project.'),
    owned: shape.boolean('Whether the caller owns the project. False for a collaborator.'),
    ssh_public_key: shape.string('The public key to install in the repository.'),
    badge: shape.boolean('Present when true: the badge is visible without credentials.'),
    cancel_superseded: shape.boolean(
      'Present when true: a new build request for a branch cancels older ones for the same branch.',
    ),
    submodules: shape.oneOf(
      submoduleSettings.filter(setting => setting !== 'off'),
      'Present unless off: submodules are fetched, and with `recursive` also theirs.',
    ),
    local_variables: shape.boolean(
      'Present when true: local runs of collaborators get the variables of suites. Those of the owner always do.',
    ),
  },
  ['badge', 'cancel_superseded', 'submodules', 'local_variables'],
);

export function presentProject(
  project: {
    id: bigint;
    name: string;
    description: string;
    repositoryUrl: string;
    buildState: ProjectState;
    badge: boolean;
    cancelSuperseded: boolean;
    submodules: SubmoduleSetting;
    localVariables: boolean;
  },
  seen: { owned: boolean; sshPublicKey: string },
) {
  return {
    ...idPair('id', project.id),
    name: project.name,
    description: project.description,
    repository_url: project.repositoryUrl,
    build_state: project.buildState,
    owned: seen.owned,
    ssh_public_key: seen.sshPublicKey,
    ...(project.badge && { badge: true }),
    ...(project.cancelSuperseded && { cancel_superseded: true }),
    ...(project.submodules !== 'off' && { submodules: project.submodules }),
    ...(project.localVariables && { local_variables: true }),
  };
}

export const collaboratorShape = record('Collaborator', {
  ...ids,
  email: shape.email('Email of the collaborator.'),
});
export const invitedCollaboratorShape = record(
  'InvitedCollaborator',
  {
    ...ids,
    email: shape.email('Email of the collaborator.'),
    sign_in_url: shape.string(
      'Present once, while the account that the caller invited has no password. The link signs in and sets a password.',
    ),
  },
  ['sign_in_url'],
);

export function presentCollaborator(collaborator: { id: bigint; email: string }) {
  return { ...idPair('id', collaborator.id), email: collaborator.email };
}
