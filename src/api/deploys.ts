// Deploy endpoints: strategies and deploys.

import {
  deployItemShape,
  deployShape,
  presentDeploy,
  presentDeployItem,
  presentStrategy,
  presentStrategyItem,
  strategyItemShape,
  strategyShape,
} from '../contract/records/deploy.ts';
import { destroyedShape } from '../contract/wire.ts';
import { checkBranch, checkRepositoryUrl } from '../domain/names.ts';
import { type Commit, findPushedCommit } from '../store/builds.ts';
import { deployLogPath } from '../store/data/paths.ts';
import {
  cancelDeploy,
  createDeploy,
  createStrategy,
  type DeployStrategy,
  deleteStrategy,
  findStrategy,
  isStrategyNameTaken,
  listDeploys,
  listStrategies,
  updateStrategy,
} from '../store/deploys.ts';
import { endpoint, listing } from './endpoint.ts';
import { flag, required, requiredId, requiredName } from './fields.ts';
import { respondLog } from './log.ts';

const fields = {
  name: requiredName({ doc: "Unique among the project's strategies.", example: 'Production' }),
  strategy_type: required({ doc: 'The only type.', oneOf: ['git'] }),
  'options[repository_url]': required({
    doc: 'Where to push, scp-like, without a protocol.',
    example: 'git@git.example.org:team/live.git',
    check: checkRepositoryUrl,
    maxBytes: 1024,
  }),
  'options[local_branch]': required({ doc: 'Branch to push.', example: 'main', check: checkBranch }),
  'options[remote_branch]': required({
    doc: 'Branch to push to.',
    example: 'main',
    check: checkBranch,
  }),
  'options[automatic]': flag('Whether to deploy each commit of local_branch that passes.'),
};

export const deploys = {
  listStrategies: endpoint({
    method: 'GET',
    path: '/projects/:project_id/deploy_strategies',
    summary: "Lists the project's deploy strategies, without their options",
    access: 'sees',
    scope: 'deploys',
    response: { list: strategyItemShape },
    handle: ({ db, project, page }) =>
      listing(page, listStrategies(db, project.id, page), presentStrategyItem),
  }),
  createStrategy: endpoint({
    method: 'POST',
    path: '/projects/:project_id/deploy_strategies',
    summary: 'Creates a deploy strategy',
    access: 'sees',
    scope: 'deploys',
    fields,
    checkTogether: ({ name }, { db, project }) =>
      name !== undefined && isStrategyNameTaken(db, project.id, name) ? { name: ['already_exists'] } : {},
    response: { record: strategyShape, status: 201 },
    handle: ({ db, project, values }) =>
      presentStrategy(
        createStrategy(db, {
          projectId: project.id,
          name: values.name,
          strategyType: values.strategy_type,
          repositoryUrl: values['options[repository_url]'],
          localBranch: values['options[local_branch]'],
          remoteBranch: values['options[remote_branch]'],
          automatic: values['options[automatic]'] ?? false,
        }),
      ),
  }),
  getStrategy: endpoint({
    method: 'GET',
    path: '/projects/:project_id/deploy_strategies/:deploy_strategy_id',
    summary: 'Returns a deploy strategy with its options',
    access: 'sees',
    scope: 'deploys',
    response: { record: strategyShape },
    handle: ({ deployStrategy }) => presentStrategy(deployStrategy),
  }),
  updateStrategy: endpoint({
    method: 'PUT',
    path: '/projects/:project_id/deploy_strategies/:deploy_strategy_id',
    summary: 'Updates the fields that are sent',
    access: 'sees',
    scope: 'deploys',
    fields,
    checkTogether: ({ name }, { db, deployStrategy }) =>
      name !== undefined && isStrategyNameTaken(db, deployStrategy.projectId, name, deployStrategy)
        ? { name: ['already_exists'] }
        : {},
    response: { record: strategyShape },
    handle: ({ db, deployStrategy, values }) =>
      presentStrategy(
        updateStrategy(db, deployStrategy, {
          name: values.name ?? deployStrategy.name,
          repositoryUrl: values['options[repository_url]'] ?? deployStrategy.repositoryUrl,
          localBranch: values['options[local_branch]'] ?? deployStrategy.localBranch,
          remoteBranch: values['options[remote_branch]'] ?? deployStrategy.remoteBranch,
          automatic: values['options[automatic]'] ?? deployStrategy.automatic,
        }),
      ),
  }),
  deleteStrategy: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id/deploy_strategies/:deploy_strategy_id',
    summary: 'Deletes a deploy strategy; its deploys stay readable',
    access: 'users',
    scope: 'deploys',
    response: { record: destroyedShape },
    handle: ({ db, deployStrategy }) => {
      deleteStrategy(db, deployStrategy.id);
      return { destroyed: true };
    },
  }),
  list: endpoint({
    method: 'GET',
    path: '/projects/:project_id/deploys',
    summary: "Lists the project's deploys",
    access: 'sees',
    scope: 'deploys',
    response: { list: deployItemShape },
    handle: ({ db, project, page }) => listing(page, listDeploys(db, project.id, page), presentDeployItem),
  }),
  create: endpoint({
    method: 'POST',
    path: '/projects/:project_id/deploys',
    summary: 'Deploys a commit with a strategy',
    access: 'sees',
    scope: 'deploys',
    fields: {
      deploy_strategy_id: requiredId('The strategy to use.'),
      commit_id: requiredId('The commit to push.'),
    },
    response: { record: deployItemShape, status: 201 },
    findMissing: (values, { db, project }) => [
      ...(findStrategy(db, project.id, values.deploy_strategy_id) ? [] : ['deploy_strategy_id']),
      ...(findPushedCommit(db, project.id, values.commit_id) ? [] : ['commit_id']),
    ],
    handle: ({ db, project, caller, values }) => {
      const strategy = findStrategy(db, project.id, values.deploy_strategy_id) as DeployStrategy;
      const commit = findPushedCommit(db, project.id, values.commit_id) as Commit;
      return presentDeployItem(createDeploy(db, strategy, commit, caller.email));
    },
  }),
  get: endpoint({
    method: 'GET',
    path: '/projects/:project_id/deploys/:deploy_id',
    summary: 'Returns a deploy',
    access: 'sees',
    scope: 'deploys',
    response: { record: deployShape },
    handle: ({ deploy }) => presentDeploy(deploy),
  }),
  cancel: endpoint({
    method: 'POST',
    path: '/projects/:project_id/deploys/:deploy_id/cancel',
    summary:
      'Cancels a deploy. A running push is aborted, then the remote branch is checked: the deploy ends as `deployed` if the push had arrived, else as `canceled`',
    access: 'sees',
    scope: 'deploys',
    response: { record: deployShape },
    handle: ({ db, deploy, caller }) => presentDeploy(cancelDeploy(db, deploy, `by ${caller.email}`)),
  }),
  log: endpoint({
    method: 'GET',
    path: '/projects/:project_id/deploys/:deploy_id/log',
    summary: 'Returns the output of the push; supports Range',
    access: 'sees',
    scope: 'deploys',
    response: { media: 'text/plain', description: 'The log, byte for byte.', ranges: true },
    handle: ({ dataDirectory, deploy, request }) =>
      respondLog(request, deployLogPath(dataDirectory, deploy.id)),
  }),
};
