// What a suite's container is to be: decided here from plain facts, carried out by work/run-suite.

import type { PlacedSubmodule } from '../submodules.ts';
import { checkoutStep, workspaceMount } from './checkout-script.ts';
import {
  CACHE_DIRECTORY,
  type ContainerPlan,
  environmentMount,
  HOME_DIRECTORY,
  type Mount,
  mirrorMount,
  outputMount,
  PROJECT_DIRECTORY,
  resourceName,
  submodulesMount,
} from './container-plan.ts';
import { type EntryStep, entryCommand } from './entry-script.ts';

export const COMMAND_STEP = 'command';
const LAUNCH_SECONDS = 60;

/** A dependency as a suite sees it. */
export type AttachedDependency = { name: string; prefix: string; launchCommand: string };

export type Limits = {
  memoryBytes: number;
  cpus: number;
  pids: number;
  shmBytes: number;
  runAs: { uid: number; gid: number };
};

export type SuiteOptions = {
  instance: string;
  build: { id: bigint; commitRef: string; nonce: string };
  project: { name: string; repositoryUrl: string };
  suite: { id: bigint; name: string; command: string };
  /** Empty where a tag or a hash was asked for. */
  branch: string;
  /** What `renderEnvironment` made of the suite's variables; absent where there are none. */
  environmentFile?: string;
  /** In the order in which they are launched. */
  dependencies: readonly AttachedDependency[];
  /** Theirs, in the order in which they are searched. */
  prefixes: readonly string[];
  /** Where the dependencies' artifacts are mounted from. */
  artifactMounts: readonly Mount[];
  image: { reference: string; mounts: readonly Mount[]; userName: string };
  network: string;
  limits: Limits;
  mirror: string;
  /** Where the mirrors of submodules are, if there are any. */
  submoduleMirrors?: string | undefined;
  submodules?: readonly PlacedSubmodule[];
  hasLfs?: boolean;
  outputFile: string;
  /** What /srv/cache is kept in. */
  cacheVolume: string;
  /** Set where the checkout was made beside, for an image without git. */
  workspaceVolume?: string;
};

export function suiteCheckout(
  facts: Pick<SuiteOptions, 'build' | 'branch' | 'project' | 'submodules' | 'hasLfs'>,
): EntryStep {
  return checkoutStep({
    hash: facts.build.commitRef,
    ...(facts.branch !== '' && { branch: facts.branch }),
    originUrl: facts.project.repositoryUrl,
    ...(facts.submodules && { submodules: facts.submodules }),
    ...(facts.hasLfs && { hasLfs: true }),
  });
}

export const launchStep = (index: number) => `launch-${index + 1}`;

export function planSuite(facts: SuiteOptions): ContainerPlan {
  const { build, suite, limits, dependencies } = facts;
  const labels = { instance: facts.instance, kind: 'build', id: build.id.toString() };
  const steps: EntryStep[] = [
    ...(facts.workspaceVolume === undefined ? [suiteCheckout(facts)] : []),
    ...dependencies.flatMap(({ launchCommand }, index): EntryStep[] =>
      launchCommand === ''
        ? []
        : [
            {
              name: launchStep(index),
              script: launchCommand,
              limitSeconds: LAUNCH_SECONDS,
              environment: 'suite',
            },
          ],
    ),
    { name: COMMAND_STEP, script: suite.command, environment: 'suite' },
  ];
  return {
    name: resourceName(labels),
    labels,
    image: facts.image.reference,
    user: `${limits.runAs.uid}:${limits.runAs.gid}`,
    command: entryCommand({ nonce: build.nonce, steps, searchPaths: searchPathsOf(facts.prefixes) }),
    environment: {
      CI: 'true',
      ASSAY: 'true',
      ASSAY_PROJECT: facts.project.name,
      ASSAY_SUITE: suite.name,
      ASSAY_COMMIT: build.commitRef,
      ASSAY_BRANCH: facts.branch,
      ASSAY_BUILD_ID: build.id.toString(),
      HOME: HOME_DIRECTORY,
      USER: facts.image.userName,
      TERM: 'dumb',
    },
    workingDirectory: PROJECT_DIRECTORY,
    mounts: [
      ...facts.image.mounts,
      outputMount(facts.outputFile),
      ...(facts.environmentFile === undefined ? [] : [environmentMount(facts.environmentFile)]),
      mirrorMount(facts.mirror),
      ...(facts.submoduleMirrors === undefined ? [] : [submodulesMount(facts.submoduleMirrors)]),
      ...(facts.workspaceVolume === undefined ? [] : [workspaceMount(facts.workspaceVolume)]),
      {
        type: 'volume',
        source: facts.cacheVolume,
        target: CACHE_DIRECTORY,
        readOnly: false,
        owner: { instance: facts.instance, kind: 'cache', id: suite.id.toString() },
      },
      ...facts.artifactMounts,
    ],
    memoryBytes: limits.memoryBytes,
    cpus: limits.cpus,
    pids: limits.pids,
    shmBytes: limits.shmBytes,
    network: facts.network,
  };
}

export function searchPathsOf(prefixes: readonly string[]) {
  return {
    path: prefixes.map(prefix => `${prefix}/bin`),
    libraries: prefixes.map(prefix => `${prefix}/lib`),
    pkgConfig: prefixes.map(prefix => `${prefix}/lib/pkgconfig`),
  };
}
