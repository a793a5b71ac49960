// Plans the container of a suite. work/suite-job runs it.

import type { PlacedSubmodule } from '../submodules.ts';
import { checkoutStep, workspaceMount } from './checkout-script.ts';
import {
  ARTIFACTS_DIRECTORY,
  CACHE_DIRECTORY,
  type ContainerPlan,
  environmentMount,
  HOME_DIRECTORY,
  type Limits,
  type Mount,
  mirrorMount,
  outputMount,
  PROJECT_DIRECTORY,
  type RemotePlan,
  resourceName,
  snapshotMount,
  submodulesMount,
} from './container-plan.ts';
import { type MountedDependency, runDirectories } from './dependency-environment.ts';
import { COMMAND_STEP, type EntryStep, entryCommand } from './entry-script.ts';
import { keepScript } from './remote-script.ts';

/** A dependency as a suite starts it. */
export type LaunchedDependency = { id: bigint; name: string; launchCommand: string; launchSeconds: number };

export type SuiteOptions = {
  instance: string;
  build: { id: bigint; commitRef: string; nonce: string; startedAt: number };
  project: { name: string; repositoryUrl: string };
  suite: { id: bigint; name: string; command: string };
  /** Empty if the request named something else. */
  branch: string;
  tag: string;
  /** The type and name of the trigger that started the request; empty if it was no trigger. */
  trigger: string;
  triggerName: string;
  /** The number of the pull request, or empty. */
  pullRequest: string;
  /** The output of `renderEnvironment`. Absent if there are neither variables nor dependencies. */
  environmentFile?: string;
  /** In launch order. */
  dependencies: readonly LaunchedDependency[];
  /** The same, in search order. */
  used: readonly MountedDependency[];
  artifactMounts: readonly Mount[];
  image: { reference: string; mounts: readonly Mount[]; userName: string };
  network: string;
  limits: Limits;
  mirror: string;
  /** The repository of the snapshot that has the commit, if it is a local run. */
  snapshot?: string | undefined;
  /** The directory of the submodule mirrors, if there are any. */
  submoduleMirrors?: string | undefined;
  submodules?: readonly PlacedSubmodule[];
  hasLfs?: boolean;
  outputFile: string;
  /** Mounted at /srv/cache. */
  cacheVolume: string;
  /** Whether the cache belongs to the suite. Otherwise it belongs to the build, and is removed with it. */
  isCacheKept: boolean;
  /** Set if a separate container made the checkout, for an image without git. */
  workspaceVolume?: string;
  /** Set if the container may run on another machine. */
  remote?: Omit<RemotePlan, 'nonce'>;
};

export function suiteCheckout(
  options: Pick<SuiteOptions, 'build' | 'branch' | 'project' | 'submodules' | 'hasLfs' | 'snapshot'>,
): EntryStep {
  return checkoutStep({
    hash: options.build.commitRef,
    at: options.build.startedAt,
    ...(options.branch !== '' && { branch: options.branch }),
    originUrl: options.project.repositoryUrl,
    ...(options.submodules && { submodules: options.submodules }),
    ...(options.hasLfs && { hasLfs: true }),
    ...(options.snapshot !== undefined && { hasSnapshot: true }),
  });
}

const launchStep = (index: number) => `launch-${index + 1}`;

/** The dependency that a step starts. */
export const findLaunched = <D>(dependencies: readonly D[], step: string): D | undefined =>
  dependencies.find((_, index) => step === launchStep(index));

export function planSuite(options: SuiteOptions): ContainerPlan {
  const { build, suite, dependencies, remote } = options;
  const owner = { instance: options.instance, kind: 'build', id: build.id.toString() };
  const run = runDirectories(options.used);
  const steps: EntryStep[] = [
    ...(options.workspaceVolume === undefined ? [suiteCheckout(options)] : []),
    ...dependencies.flatMap(({ id, launchCommand, launchSeconds }, index): EntryStep[] => {
      if (launchCommand === '') return [];
      const directory = run.get(id);
      return [
        {
          name: launchStep(index),
          script: `mkdir -p ${directory} && export ASSAY_RUN=${directory} || exit\n${launchCommand}`,
          limitSeconds: launchSeconds,
          environment: 'suite',
        },
      ];
    }),
    { name: COMMAND_STEP, script: suite.command, environment: 'suite' },
  ];
  return {
    name: resourceName(owner),
    owner,
    image: options.image.reference,
    command: entryCommand({ nonce: build.nonce, steps, ...(remote && { finish: keepScript(remote.kept) }) }),
    environment: {
      CI: 'true',
      ASSAY: 'true',
      ASSAY_PROJECT: options.project.name,
      ASSAY_SUITE: suite.name,
      ASSAY_COMMIT: build.commitRef,
      ASSAY_BRANCH: options.branch,
      ASSAY_TAG: options.tag,
      ASSAY_TRIGGER: options.trigger,
      ASSAY_TRIGGER_NAME: options.triggerName,
      ...(options.pullRequest !== '' && { ASSAY_PULL_REQUEST: options.pullRequest }),
      ASSAY_BUILD_ID: build.id.toString(),
      ASSAY_ARTIFACTS: ARTIFACTS_DIRECTORY,
      HOME: HOME_DIRECTORY,
      USER: options.image.userName,
      TERM: 'dumb',
      LANG: 'C.UTF-8',
    },
    workingDirectory: PROJECT_DIRECTORY,
    mounts: [
      ...options.image.mounts,
      outputMount(options.outputFile),
      ...(options.environmentFile === undefined ? [] : [environmentMount(options.environmentFile)]),
      mirrorMount(options.mirror),
      ...(options.snapshot === undefined ? [] : [snapshotMount(options.snapshot)]),
      ...(options.submoduleMirrors === undefined ? [] : [submodulesMount(options.submoduleMirrors)]),
      ...(options.workspaceVolume === undefined ? [] : [workspaceMount(options.workspaceVolume)]),
      {
        type: 'volume',
        source: options.cacheVolume,
        target: CACHE_DIRECTORY,
        readOnly: false,
        owner: options.isCacheKept
          ? { instance: options.instance, kind: 'cache', id: suite.id.toString() }
          : { instance: options.instance, kind: 'workspace', id: build.id.toString() },
      },
      ...options.artifactMounts,
    ],
    limits: options.limits,
    network: options.network,
    ...(remote && { remote: { ...remote, nonce: build.nonce } }),
  };
}
