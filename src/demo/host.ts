// Checks that the host has what the demo needs, and removes what the demo created in Docker.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Settings } from '../config.ts';
import { HOST_IMAGE } from '../domain/names.ts';
import { removeContainersAndVolumes, removeNetworkAndRules } from '../engine/cleanup.ts';
import { createDockerEngine } from '../engine/docker/docker-engine.ts';
import { inspectDocker } from '../engine/docker/report.ts';
import { OWN_BRIDGE } from '../engine/engine.ts';

/** Printed to the user without a stack trace. */
export class DemoFailure extends Error {}

const DEADLINE_MS = 10_000;

/** One line with the versions found; throws with everything that is missing. */
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
    programVersion(
      'curl',
      ['--version'],
      /^curl ([\d.]+)/,
      'curl: install it (Debian: apt-get install curl)',
    ),
    // The image `host` uses the compilers of the host; other images have their own.
    ...(settings.image === HOST_IMAGE ? [compilers()] : []),
  ];
  const found = await Promise.allSettled(needs);
  const missing = found.filter(one => one.status === 'rejected').map(one => (one.reason as Error).message);
  if (missing.length > 0)
    throw new DemoFailure(`this host lacks what the demo needs:\n  ${missing.join('\n  ')}`);
  return found.flatMap(one => (one.status === 'fulfilled' ? one.value : [])).join(', ');
}

async function dockerVersion(dockerHost: string): Promise<string[]> {
  const { engine } = await inspectDocker(dockerHost);
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
  } catch (error) {
    const { code, stderr } = error as { code?: string | number; stderr?: string };
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

/** Everything that the demo has in Docker, except for images, which others may use. */
export async function removeTraces(
  settings: Pick<Settings, 'dockerHost' | 'network' | 'runAs'>,
  instance: string,
): Promise<void> {
  const engine = createDockerEngine({ ...settings, instance });
  try {
    await removeContainersAndVolumes(engine);
    if (settings.network === OWN_BRIDGE) await removeNetworkAndRules(engine);
  } finally {
    engine.close();
  }
}
