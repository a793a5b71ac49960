// The state machine of a deploy. A deploy that a crash interrupts stays `deploying`; it resumes by asking the remote.

import { type Machine, unfinishedStates } from './machine.ts';

export type DeployState = 'enqueued' | 'deploying' | 'deployed' | 'failed' | 'canceled';
export type DeployEvent = 'start' | 'deploy' | 'fail' | 'cancel';

export const deployMachine: Machine<DeployState, DeployEvent> = {
  enqueued: { start: 'deploying', cancel: 'canceled', fail: 'failed' },
  deploying: { deploy: 'deployed', fail: 'failed', cancel: 'canceled' },
  deployed: {},
  failed: {},
  canceled: {},
};

export const UNFINISHED_DEPLOYS: readonly DeployState[] = unfinishedStates(deployMachine);
