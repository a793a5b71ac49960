// What the demo needs of the host, said before anything begins, and what it made there, taken away at the end.
import { execFile } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Settings } from '../config.ts';
import { createEngine } from '../engine/container.ts';
import { createImages, HOST_IMAGE } from '../engine/image.ts';
import { createNetwork, OWN_BRIDGE } from '../engine/network.ts';

/** Told to the person who started the demo, without a stack. */
export class DemoFailure extends Error {}

const DEADLINE_MS = 10_000;
const REMOVAL_MS = 15_000;

/** One line that says what is there; throws with all that is missing. */
export async function checkHost(settings: Settings): Promise<string> {
  const needs = [
    dockerVersion(settings.dockerHost),
    programVersion(
      'git',
      ['--version'],
      /git version ([\d.]+)/,
      'git: install it (Debian: apt-get install git)',
    ),
    programVersion(
      'ssh',
      ['-V'],
      /(OpenSSH_[\w.]+)/,
      'ssh: install an OpenSSH client (Debian: apt-get install openssh-client)',
    ),
    // The image `host` has the compilers of the host; another one brings its own.
    ...(settings.image === HOST_IMAGE ? [compilers()] : []),
  ];
  const found = await Promise.allSettled(needs);
  const missing = found.filter(one => one.status === 'rejected').map(one => (one.reason as Error).message);
  if (missing.length > 0)
    throw new DemoFailure(`the demo needs what this host lacks:\n  ${missing.join('\n  ')}`);
  return found.flatMap(one => (one.status === 'fulfilled' ? one.value : [])).join(', ');
}

async function dockerVersion(dockerHost: string): Promise<string[]> {
  const { engine } = await createEngine({ dockerHost, deadlineMs: DEADLINE_MS }).version();
  return [`Docker ${engine.replace(/\+.*/, '')}`];
}

async function programVersion(
  program: string,
  args: string[],
  form: RegExp,
  advice: string,
): Promise<string[]> {
  try {
    const { stdout, stderr } = await promisify(execFile)(program, args, { timeout: DEADLINE_MS });
    const version = form.exec(stdout + stderr)?.[1] ?? '';
    return [version.startsWith('OpenSSH') ? version.replace('_', ' ') : `${program} ${version}`.trim()];
  } catch (cause) {
    const { code, stderr } = cause as { code?: string | number; stderr?: string };
    if (code === 'ENOENT') throw new Error(advice);
    throw new Error(`${advice}; ${program} says: ${stderr?.trim().split('\n')[0]}`);
  }
}

async function compilers(): Promise<string[]> {
  const advice =
    'a C compiler, its headers and make: install them (Debian: apt-get install gcc libc6-dev make)';
  await programVersion('make', ['--version'], /$/, advice);
  await programVersion('cc', ['-E', '-include', 'stdio.h', '-x', 'c', '/dev/null'], /$/, advice);
  return ['cc', 'make'];
}

/** Everything with this instance's label: containers first, since the rest cannot go before them. */
export async function removeTraces(
  settings: Pick<Settings, 'dockerHost' | 'network' | 'runAs'>,
  instance: string,
): Promise<void> {
  const engine = createEngine({ dockerHost: settings.dockerHost });
  const deadline = performance.now() + REMOVAL_MS;
  for (;;) {
    for (const { containerId } of await engine.listContainers(instance))
      await engine.removeContainer(containerId);
    for (const { name } of await engine.listVolumes(instance)) await engine.removeVolume(name);
    const left = [...(await engine.listContainers(instance)), ...(await engine.listVolumes(instance))];
    if (left.length === 0) break;
    if (performance.now() > deadline)
      throw new Error(`Docker still has ${left.map(({ name }) => name).join(', ')}: remove it by hand`);
    // One that somebody else is removing is gone in a moment, and Docker does not say when.
    await delay(100);
  }
  if (settings.network !== OWN_BRIDGE) return;
  const images = createImages(engine.door, instance);
  const network = createNetwork(engine.door, {
    instance,
    setting: settings.network,
    hostImage: () => images.prepareImage(HOST_IMAGE, settings.runAs),
  });
  try {
    await network.remove();
  } finally {
    network.close();
  }
}
