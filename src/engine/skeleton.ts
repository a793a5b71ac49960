// Owns the directories and files that every image of ours has, as a tar: the workspace, the cache, a home, the
// user's name, and for the image `host` the links into the host's /usr. Getting it into an image is image.ts's.
import { existsSync, lstatSync, readdirSync, readlinkSync } from 'node:fs';
import { pack } from 'tar-stream';
import {
  CACHE_DIRECTORY,
  HOME_DIRECTORY,
  type Mount,
  PROJECT_DIRECTORY,
  type RunAs,
} from '../domain/container-plan.ts';

const USER_NAME = 'assay';

/** What programs under /usr look for in /etc, where the host has it. No keys: of ssl, the certificates only. */
const HOST_ETC = [
  /^alternatives$/,
  /^(ca-certificates|pki\/tls\/certs|pki\/ca-trust|ssl\/certs|ssl\/openssl\.cnf)$/,
  /^(ld\.so\.cache|ld\.so\.conf|ld\.so\.conf\.d)$/,
  /^(java|java-.*|jvm-.*|maven|python3.*|perl|php|ruby|fonts|gcrypt|terminfo)$/,
  /^(protocols|services|mime\.types|magic|magic\.mime|inputrc|gai\.conf|localtime|timezone)$/,
];

const ROOT_LINKS = ['bin', 'lib', 'lib32', 'lib64', 'libx32'];

interface Entry {
  name: string;
  mode: number;
  owner?: RunAs;
  link?: string;
  content?: string;
}

/** Owned by the user: an empty volume mounted there takes the directory's owner, and is writable. */
function workspace(runAs: RunAs): Entry[] {
  return [
    { name: 'tmp', mode: 0o1777 },
    { name: 'srv', mode: 0o755 },
    { name: 'srv/.assay', mode: 0o755 },
    { name: PROJECT_DIRECTORY.slice(1), mode: 0o755, owner: runAs },
    { name: CACHE_DIRECTORY.slice(1), mode: 0o755, owner: runAs },
    { name: 'home', mode: 0o755 },
    { name: HOME_DIRECTORY.slice(1), mode: 0o755, owner: runAs },
  ];
}

/** For an image that has a system already: `passwd` and `group` are its own, and get a line when they lack it. */
export async function workspaceTar(runAs: RunAs, passwd: string, group: string): Promise<Buffer> {
  return await tarOf([
    ...workspace(runAs),
    { name: 'etc', mode: 0o755 },
    { name: 'etc/passwd', mode: 0o644, content: withUser(passwd, runAs) },
    { name: 'etc/group', mode: 0o644, content: withGroup(group, runAs) },
  ]);
}

/** The root of the image `host`: everything but the host's /usr, which is mounted when a container is made. */
export async function hostTar(runAs: RunAs): Promise<Buffer> {
  const links = ROOT_LINKS.filter(name => isLink(`/${name}`));
  // A real directory, since Docker mounts its init into it; with a link for each program the host has there.
  const sbin = existsSync('/usr/sbin') ? readdirSync('/usr/sbin').sort() : [];
  return await tarOf([
    ...workspace(runAs),
    ...['dev', 'etc', 'proc', 'run', 'sbin', 'sys', 'usr', 'var', 'var/lib'].map(name => ({
      name,
      mode: 0o755,
    })),
    { name: 'var/tmp', mode: 0o1777 },
    { name: 'root', mode: 0o700 },
    ...links.map(name => ({ name, mode: 0o777, link: readlinkSync(`/${name}`) })),
    ...sbin.map(name => ({ name: `sbin/${name}`, mode: 0o777, link: `/usr/sbin/${name}` })),
    { name: 'etc/passwd', mode: 0o644, content: withUser('root:x:0:0:root:/root:/bin/sh\n', runAs) },
    { name: 'etc/group', mode: 0o644, content: withGroup('root:x:0:\n', runAs) },
    { name: 'etc/nsswitch.conf', mode: 0o644, content: 'passwd: files\ngroup: files\nhosts: files dns\n' },
    { name: 'etc/os-release', mode: 0o777, link: '../usr/lib/os-release' },
  ]);
}

/** What a container of the image `host` mounts, all of it read-only. */
export function hostMounts(): Mount[] {
  const roots = ['usr', ...ROOT_LINKS.filter(name => existsSync(`/${name}`) && !isLink(`/${name}`))];
  const etc = ['', 'ssl/', 'pki/', 'pki/tls/'].flatMap(directory =>
    existsSync(`/etc/${directory}`) ? readdirSync(`/etc/${directory}`).map(name => directory + name) : [],
  );
  const wanted = etc.filter(
    name => HOST_ETC.some(pattern => pattern.test(name)) && existsSync(`/etc/${name}`),
  );
  return [...roots.map(name => `/${name}`), ...wanted.sort().map(name => `/etc/${name}`)].map(path => ({
    type: 'bind',
    source: path,
    target: path,
    readOnly: true,
  }));
}

function withUser(passwd: string, { uid, gid }: RunAs): string {
  if (passwd.split('\n').some(line => line.split(':')[2] === String(uid))) return passwd;
  return `${closed(passwd)}${USER_NAME}:x:${uid}:${gid}:Assay:${HOME_DIRECTORY}:/bin/sh\n`;
}

function withGroup(group: string, { gid }: RunAs): string {
  if (group.split('\n').some(line => line.split(':')[2] === String(gid))) return group;
  return `${closed(group)}${USER_NAME}:x:${gid}:\n`;
}

function closed(text: string): string {
  return text === '' || text.endsWith('\n') ? text : `${text}\n`;
}

function isLink(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;
}

async function tarOf(entries: Entry[]): Promise<Buffer> {
  const tar = pack();
  for (const { name, mode, owner, link, content } of entries) {
    // A fixed time, so that the same skeleton has the same bytes, and its image one name.
    const header = { name, mode, uid: owner?.uid ?? 0, gid: owner?.gid ?? 0, mtime: new Date(0) };
    if (link !== undefined) tar.entry({ ...header, type: 'symlink', linkname: link });
    else if (content !== undefined) tar.entry({ ...header, type: 'file' }, content);
    else tar.entry({ ...header, type: 'directory' });
  }
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
