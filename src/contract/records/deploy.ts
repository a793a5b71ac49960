// The records of deploy strategies and deploys: their schemas, and functions that create them from rows.

import { type DeployState, deployMachine } from '../../domain/deploy.ts';
import { idPair, idPairShape, ids, record, shape, wireTimeOrNull } from '../wire.ts';

const strategyItem = {
  ...ids,
  name: shape.string('Name.'),
  strategy_type: shape.oneOf(['git'], 'The only type.'),
};
export const strategyItemShape = record('DeployStrategyItem', strategyItem);
export const strategyShape = record('DeployStrategy', {
  ...strategyItem,
  options: record(
    'GitOptions',
    {
      repository_url: shape.string('Where to push: `<user>@<host>:<path>.git`.'),
      local_branch: shape.string('Branch to push.'),
      remote_branch: shape.string('Branch to push to.'),
      automatic: shape.boolean('Present when true: each commit of local_branch that passes is deployed.'),
    },
    ['automatic'],
  ),
});

export function presentStrategyItem(strategy: { id: bigint; name: string; strategyType: string }) {
  return { ...idPair('id', strategy.id), name: strategy.name, strategy_type: strategy.strategyType };
}

export function presentStrategy(strategy: {
  id: bigint;
  name: string;
  strategyType: string;
  repositoryUrl: string;
  localBranch: string;
  remoteBranch: string;
  automatic: boolean;
}) {
  return {
    ...presentStrategyItem(strategy),
    options: {
      repository_url: strategy.repositoryUrl,
      local_branch: strategy.localBranch,
      remote_branch: strategy.remoteBranch,
      ...(strategy.automatic && { automatic: true }),
    },
  };
}

const deployItem = {
  ...ids,
  state: shape.oneOf(Object.keys(deployMachine), 'State of the deploy.'),
  created_by: shape.email('Who requested it.'),
};
export const deployItemShape = record('DeployItem', deployItem);
export const deployShape = record(
  'Deploy',
  {
    ...deployItem,
    ...idPairShape('deploy_strategy_id', 'The strategy used.'),
    ...idPairShape('commit_id', 'The commit that is pushed.'),
    deploy_started_at: shape.nullable(shape.time('Null before it starts.')),
    deploy_finished_at: shape.nullable(shape.time('Null before it ends.')),
    error: shape.string('Present when it failed: the reason.'),
  },
  ['error'],
);

type DeployItemRow = { id: bigint; state: DeployState; createdBy: string };

export function presentDeployItem(deploy: DeployItemRow) {
  return { ...idPair('id', deploy.id), state: deploy.state, created_by: deploy.createdBy };
}

export function presentDeploy(
  deploy: DeployItemRow & {
    deployStrategyId: bigint;
    commitId: bigint;
    startedAt: number | null;
    finishedAt: number | null;
    error: string | null;
  },
) {
  return {
    ...presentDeployItem(deploy),
    ...idPair('deploy_strategy_id', deploy.deployStrategyId),
    ...idPair('commit_id', deploy.commitId),
    deploy_started_at: wireTimeOrNull(deploy.startedAt),
    deploy_finished_at: wireTimeOrNull(deploy.finishedAt),
    ...(deploy.error !== null && { error: deploy.error }),
  };
}
