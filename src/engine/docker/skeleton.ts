// Creates the tar of directories and files that Assay adds to every image: workspace, cache, home and user, and for the
// image `host` the links to the host's /usr.
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { pack } from 'tar-stream';
import {
  ARTIFACTS_DIRECTORY,
  CACHE_DIRECTORY,
  HOME_DIRECTORY,
  MIRROR_DIRECTORY,
  type Mount,
  OUTPUT_FILE,
  PIPE_FILE,
  PROJECT_DIRECTORY,
  RUN_DIRECTORY,
  type RunAs,
  SCRIPT_FILE,
} from '../../domain/container/container-plan.ts';
import { ENTRY_SCRIPT } from '../../domain/container/entry-script.ts';

const USER_NAME = 'assay';

/** The time of everything that Assay adds to images. A directory that still has it was never written to. */
export const UNCHANGED_AT = 0;

/** What programs under /usr need from the host's /etc. No keys: of ssl, only the certificates. */
const HOST_ETC = [
  /^alternatives$/,
  /^(ca-certificates|pki\/tls\/certs|pki\/ca-trust|ssl\/certs|ssl\/openssl\.cnf)$/,
  /^(ld\.so\.cache|ld\.so\.conf|ld\.so\.conf\.d)$/,
  /^(java|java-.*|jvm-.*|maven|python3.*|perl|php|ruby|fonts|gcrypt|terminfo)$/,
  /^(protocols|services|mime\.types|magic|magic\.mime|inputrc|gai\.conf|localtime|timezone)$/,
];

/** Directories under /etc of which only some content is mounted. */
const ETC_DIRECTORIES = ['ssl', 'pki', 'pki/tls'];

/**
 * The host's settings for installed tools. They may contain credentials, so they are not mounted: `hostSettings` copies
 * those that every user of the host may read and that contain none.
 */
const HOST_SETTINGS = [
  /^(npmrc|gitconfig|pip\.conf|shells|ca-certificates\.conf)$/,
  // `apikeys` has keys for online services.
  /^chromium\.d\/(?!apikeys$)[\w.-]+$/,
];
const SETTINGS_BYTES = 64 * 1024;
const CREDENTIALS =
  /_auth(token)?\s*=|passw(or)?d|token|secret|api[_-]?key|authorization|PRIVATE KEY|:\/\/(?!git@)[^/\s@]+@/i;

/** Debian's Chromium exits if it cannot create a sandbox, which needs privileges that containers do not have. */
const CHROMIUM_FLAGS = `# The container is the sandbox: another one cannot be created in it.
export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox"
`;

const ROOT_LINKS = ['bin', 'lib', 'lib32', 'lib64', 'libx32'];

type Entry = {
  name: string;
  mode: number;
  owner?: RunAs;
  link?: string;
  content?: string;
  isPipe?: boolean;
};

/**
 * The user owns the directories of volumes, because an empty volume takes the owner of the directory that it is mounted at.
 * The mount points that every build has are here too, because Docker would otherwise create them in each container.
 */
function workspace(runAs: RunAs): Entry[] {
  return [
    { name: 'tmp', mode: 0o1777 },
    { name: 'srv', mode: 0o755 },
    { name: 'srv/.assay', mode: 0o755 },
    { name: SCRIPT_FILE.slice(1), mode: 0o644, content: ENTRY_SCRIPT },
    // For any user of the container, which has its own pipe of that name.
    { name: PIPE_FILE.slice(1), mode: 0o666, isPipe: true },
    { name: OUTPUT_FILE.slice(1), mode: 0o644, content: '' },
    { name: MIRROR_DIRECTORY.slice(1), mode: 0o755 },
    { name: PROJECT_DIRECTORY.slice(1), mode: 0o755, owner: runAs },
    { name: CACHE_DIRECTORY.slice(1), mode: 0o755, owner: runAs },
    { name: ARTIFACTS_DIRECTORY.slice(1), mode: 0o755, owner: runAs },
    { name: RUN_DIRECTORY.slice(1), mode: 0o755, owner: runAs },
    { name: 'home', mode: 0o755 },
    { name: HOME_DIRECTORY.slice(1), mode: 0o755, owner: runAs },
  ];
}

/** For an image other than `host`: adds missing lines to its `passwd` and `group`. */
export async function workspaceTar(runAs: RunAs, passwd: string, group: string): Promise<Buffer> {
  return await tarOf([
    ...workspace(runAs),
    { name: 'etc', mode: 0o755 },
    { name: 'etc/passwd', mode: 0o644, content: withUser(passwd, runAs) },
    { name: 'etc/group', mode: 0o644, content: withGroup(group, runAs) },
  ]);
}

type HostSettings = {
  files: { name: string; content: string }[];
  /** Those that may contain credentials, or that not every user may read. */
  leftOut: string[];
};

/** The settings under /etc that containers of the image `host` get. */
export function hostSettings(etc = '/etc'): HostSettings {
  const files: HostSettings['files'] = [];
  const leftOut: string[] = [];
  for (const name of listUnder(etc, ['', 'chromium.d/'])) {
    if (!HOST_SETTINGS.some(pattern => pattern.test(name))) continue;
    const path = `${etc}/${name}`;
    const found = statSync(path, { throwIfNoEntry: false });
    if (!found?.isFile()) continue;
    const isReadable = (found.mode & 0o004) !== 0 && found.size <= SETTINGS_BYTES;
    const content = isReadable ? readFileSync(path, 'utf8') : undefined;
    if (content === undefined || CREDENTIALS.test(content)) leftOut.push(name);
    else files.push({ name, content });
  }
  return { files, leftOut };
}

function listUnder(root: string, directories: readonly string[]): string[] {
  return directories
    .flatMap(directory => listDirectory(`${root}/${directory}`).map(name => directory + name))
    .sort();
}

/** Empty if the directory is missing or unreadable. */
function listDirectory(path: string): string[] {
  try {
    return readdirSync(path);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) return [];
    throw error;
  }
}

/** The root of the image `host`, without the host's /usr, which every container mounts. */
export async function hostTar(runAs: RunAs): Promise<Buffer> {
  const links = ROOT_LINKS.filter(name => isLink(`/${name}`));
  // A real directory with links to the host's programs, because Docker mounts its init into it.
  const sbin = existsSync('/usr/sbin') ? readdirSync('/usr/sbin').sort() : [];
  return await tarOf([
    ...workspace(runAs),
    ...['dev', 'etc', 'proc', 'run', 'sbin', 'sys', 'var', 'var/lib'].map(name => ({
      name,
      mode: 0o755,
    })),
    { name: 'var/tmp', mode: 0o1777 },
    { name: 'root', mode: 0o700 },
    ...links.map(name => ({ name, mode: 0o777, link: readlinkSync(`/${name}`) })),
    ...sbin.map(name => ({ name: `sbin/${name}`, mode: 0o777, link: `/usr/sbin/${name}` })),
    { name: 'etc/passwd', mode: 0o644, content: withUser('', runAs) },
    { name: 'etc/group', mode: 0o644, content: withGroup('', runAs) },
    { name: 'etc/chromium.d', mode: 0o755 },
    { name: 'etc/chromium.d/assay', mode: 0o644, content: CHROMIUM_FLAGS },
    ...hostSettings().files.map(({ name, content }) => ({ name: `etc/${name}`, mode: 0o644, content })),
    { name: 'etc/nsswitch.conf', mode: 0o644, content: 'passwd: files\ngroup: files\nhosts: files dns\n' },
    { name: 'etc/os-release', mode: 0o777, link: '../usr/lib/os-release' },
    ...hostMountpoints(),
  ]);
}

/** The mount points of `hostMounts`, parents first. */
function hostMountpoints(): Entry[] {
  const targets = hostMounts().map(({ target }) => target);
  const parents = ETC_DIRECTORIES.map(name => `/etc/${name}`).filter(parent =>
    targets.some(target => target.startsWith(`${parent}/`)),
  );
  return [...parents, ...targets].map(path => ({
    name: path.slice(1),
    ...(statSync(path).isDirectory() ? { mode: 0o755 } : { mode: 0o644, content: '' }),
  }));
}

/** What a container of the image `host` mounts, read-only. */
export function hostMounts(): Mount[] {
  const roots = ['usr', ...ROOT_LINKS.filter(name => existsSync(`/${name}`) && !isLink(`/${name}`))];
  const etcNames = listUnder('/etc', ['', ...ETC_DIRECTORIES.map(name => `${name}/`)]).filter(
    name => HOST_ETC.some(pattern => pattern.test(name)) && existsSync(`/etc/${name}`),
  );
  return [...roots.map(name => `/${name}`), ...etcNames.map(name => `/etc/${name}`)].map(path => ({
    type: 'bind',
    source: path,
    target: path,
    readOnly: true,
  }));
}

/** Programs expect these users and groups on every system. */
const USERS = ['root:x:0:0:root:/root:/bin/sh', 'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin'];
const GROUPS = ['root:x:0:', 'nogroup:x:65534:'];

function withUser(passwd: string, { uid, gid }: RunAs): string {
  const user = `${USER_NAME}:x:${uid}:${gid}:Assay:${HOME_DIRECTORY}:/bin/sh`;
  return [...missingLines(passwd, USERS), user].reduce(withLine, passwd);
}

function withGroup(group: string, { gid }: RunAs): string {
  return [...missingLines(group, GROUPS), `${USER_NAME}:x:${gid}:`].reduce(withLine, group);
}

/** The lines whose name is not in the text. */
const missingLines = (text: string, lines: readonly string[]) =>
  lines.filter(line => !text.split('\n').some(one => one.split(':')[0] === line.split(':')[0]));

/** Adds the line, unless one has the same number. */
function withLine(text: string, line: string): string {
  const numberOf = (one: string) => one.split(':')[2];
  if (text.split('\n').some(one => numberOf(one) === numberOf(line))) return text;
  return `${text === '' || text.endsWith('\n') ? text : `${text}\n`}${line}\n`;
}

/** The name of the user that commands run as, in an image with these users. */
export function userNameIn(passwd: string, runAs: RunAs): string {
  const lines = withUser(passwd, runAs).split('\n');
  return lines.find(line => line.split(':')[2] === String(runAs.uid))?.split(':')[0] as string;
}

function isLink(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;
}

async function tarOf(entries: Entry[]): Promise<Buffer> {
  const tar = pack();
  for (const { name, mode, owner, link, content, isPipe } of entries) {
    // With a fixed time, the same content gives the same bytes, and so the same image name.
    const header = { name, mode, uid: owner?.uid ?? 0, gid: owner?.gid ?? 0, mtime: new Date(UNCHANGED_AT) };
    if (link !== undefined) tar.entry({ ...header, type: 'symlink', linkname: link });
    else if (isPipe) tar.entry({ ...header, type: 'fifo' });
    else if (content !== undefined) tar.entry({ ...header, type: 'file' }, content);
    else tar.entry({ ...header, type: 'directory' });
  }
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
