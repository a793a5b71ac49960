// Inspects the Docker Engine for `assay doctor` and the demo, before there is an instance.
import { openDocker } from './client.ts';

const DEADLINE_MS = 10_000;

export type DockerReport = {
  engine: string;
  api: string;
  runc: string | undefined;
  rootless: boolean;
  userNamespaces: boolean;
  seccomp: boolean;
  /** Limits that this engine cannot enforce. */
  unenforced: string[];
  images: string[];
  systemTimeAt: number;
};

/** Throws EngineUnavailable or EngineRefused, whose messages say what to do. */
export async function inspectDocker(dockerHost: string, environment = process.env): Promise<DockerReport> {
  const { call } = openDocker({ dockerHost, environment, deadlineMs: DEADLINE_MS });
  const version = await call('version', docker => docker.version());
  const info = await call('info', docker => docker.info());
  const images = await call('list images', docker => docker.listImages());
  const components = (version.Components ?? []) as { Name: string; Version: string }[];
  const security = (info.SecurityOptions ?? []) as string[];
  const has = (name: string) => security.some(option => option.startsWith(`name=${name}`));
  const limits: [string, unknown][] = [
    ['memory', info.MemoryLimit],
    ['processors', info.CpuCfsQuota],
    ['processes', info.PidsLimit],
  ];
  return {
    engine: version.Version,
    api: version.ApiVersion,
    runc: components.find(({ Name }) => Name === 'runc')?.Version,
    rootless: has('rootless'),
    userNamespaces: has('userns'),
    seccomp: has('seccomp'),
    unenforced: limits.filter(([, enforced]) => enforced === false).map(([name]) => name),
    images: images.flatMap(image => [image.Id, ...(image.RepoTags ?? [])]),
    systemTimeAt: Date.parse(info.SystemTime),
  };
}
