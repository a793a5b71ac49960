// Validates text that callers supply: repository URLs, refs, variables, prefixes, commands, redirect URIs, image names.
// Each check returns the field's error code, or undefined. The API checks for blank values and for counts.

type NameError = 'invalid_format' | 'is_reserved';

const controlCharacter = /[\u0000-\u001f\u007f-\u009f]/;

/** `<user>@<host>:<path>.git`, and nothing that ssh or git could take for an option or another protocol. */
export function checkRepositoryUrl(url: string): 'invalid_format' | undefined {
  const match = /^([A-Za-z0-9._-]+)@([A-Za-z0-9._-]+):([A-Za-z0-9._~/+-]+)\.git$/.exec(url);
  if (!match || url.length > 1_024 || url.includes('..')) return 'invalid_format';
  return match.slice(1).some(field => field.startsWith('-')) ? 'invalid_format' : undefined;
}

const maxRefBytes = 200;

/** What `git check-ref-format --branch` accepts, except what git could take for an option, a refspec or a full ref. */
export function checkBranch(name: string): 'invalid_format' | undefined {
  const refused =
    !name.isWellFormed() ||
    new TextEncoder().encode(name).length > maxRefBytes ||
    name === 'HEAD' ||
    name === '@' ||
    /^(?:[-+]|refs\/)/.test(name) ||
    /[\u0000-\u0020\u007f~^:?*[\\]|\.\.|@\{|\.$/.test(name) ||
    name.split('/').some(segment => segment === '' || segment.startsWith('.') || segment.endsWith('.lock'));
  return refused ? 'invalid_format' : undefined;
}

/** A branch, a tag or a commit hash: all follow the rules of a branch name. */
export function checkCommitRef(ref: string): 'invalid_format' | undefined {
  return checkBranch(ref);
}

/** The ref of a local run whose working tree is on no branch. */
export const DETACHED = 'HEAD';

const reservedVariables = new Set(['CI', 'HOME', 'PATH', 'ASSAY', 'LD_LIBRARY_PATH', 'PKG_CONFIG_PATH']);

/** Limit of a variable's content. Linux cannot pass that much to a program, so a full one is visible to the shell only. */
export const VARIABLE_BYTES = 131_072;

export function checkVariableName(name: string): NameError | undefined {
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return 'invalid_format';
  return reservedVariables.has(name) || name.startsWith('ASSAY_') ? 'is_reserved' : undefined;
}

const systemDirectories = new Set(
  ['bin', 'dev', 'etc', 'home', 'proc', 'root', 'run', 'sbin', 'sys', 'tmp', 'usr', 'var'].map(
    name => `/${name}`,
  ),
);
const maxPathBytes = 1_024;

/** Where a dependency is installed: an absolute, normalized path that neither the system nor the workspace uses. */
export function checkPrefix(prefix: string): NameError | undefined {
  if (prefix === '/') return 'is_reserved';
  if (!prefix.startsWith('/') || !isPlainPath(prefix) || /[:,$\s]/.test(prefix)) return 'invalid_format';
  const segments = prefix.slice(1).split('/');
  if (segments.some(segment => segment === '' || segment === '.' || segment === '..'))
    return 'invalid_format';
  const top = `/${segments[0]}`;
  if (systemDirectories.has(top) || top.startsWith('/lib') || prefix === '/srv') return 'is_reserved';
  return /^\/srv\/(?:project|cache|artifacts|run|\.assay)(?:\/|$)/.test(prefix) ? 'is_reserved' : undefined;
}

/** The directory inside an archive to compile in; empty is the root. The compile detects a symlink that leads out. */
export function checkSource(source: string): 'invalid_format' | undefined {
  const leadsOut = source.startsWith('/') || source.split('/').includes('..');
  return leadsOut || !isPlainPath(source) ? 'invalid_format' : undefined;
}

function isPlainPath(path: string): boolean {
  if (!path.isWellFormed() || controlCharacter.test(path)) return false;
  return (
    new TextEncoder().encode(path).length <= maxPathBytes &&
    path.split('/').every(segment => segment.length <= 255)
  );
}

/** A compile that never mentions its prefix would leave it empty. */
export function checkCommand(command: string, prefix: string): 'invalid_format' | undefined {
  return command.includes(prefix) ? undefined : 'invalid_format';
}

/** A display name: one line, not blank, at most 255 bytes. */
export function checkLine(name: string): 'invalid_format' | undefined {
  const isLine = name.isWellFormed() && !controlCharacter.test(name) && name.trim() !== '';
  return isLine && new TextEncoder().encode(name).length <= 255 ? undefined : 'invalid_format';
}

/**
 * Two names with the same key look the same to people: case, white space, compatibility forms and invisible characters
 * are ignored. Upper case comes first because it folds characters that lower case keeps apart (ß and ss).
 */
export function nameKey(name: string): string {
  return name
    .normalize('NFKC')
    .toUpperCase()
    .toLowerCase()
    .normalize('NFKC')
    .replaceAll(/[\s\p{Default_Ignorable_Code_Point}]+/gu, '');
}

export const outOfBand = 'urn:ietf:wg:oauth:2.0:oob';

// Schemes that the browser itself runs or displays, instead of passing the code to an application.
const refusedSchemes = new Set(
  ['javascript', 'data', 'vbscript', 'blob', 'file', 'about', 'filesystem', 'view-source', 'urn'].map(
    s => `${s}:`,
  ),
);

/** An absolute URI without a fragment, for the web or an installed application, or the out-of-band value. */
export function checkRedirectUri(uri: string): 'invalid_format' | undefined {
  if (uri === outOfBand) return undefined;
  if (uri.length > 2_048 || /[\s#\\]/.test(uri) || controlCharacter.test(uri)) return 'invalid_format';
  const url = URL.parse(uri);
  if (!url || refusedSchemes.has(url.protocol)) return 'invalid_format';
  const isWeb = url.protocol === 'http:' || url.protocol === 'https:';
  if (isWeb) return /^https?:\/\/[^/?]/i.test(uri) ? undefined : 'invalid_format';
  return url.pathname === '' && url.host === '' ? 'invalid_format' : undefined;
}

/** Strict enough to catch typing errors. A colon would break Basic credentials. */
export function checkEmail(email: string): 'invalid_format' | undefined {
  const local = '[^\\s@<>()",:;\\\\[\\]]{1,64}';
  const label = '[\\p{L}\\p{N}](?:[\\p{L}\\p{N}-]{0,61}[\\p{L}\\p{N}])?';
  const isAddress = new RegExp(`^${local}@${label}(?:\\.${label})*$`, 'u');
  const isPlain = email.length <= 254 && email.isWellFormed() && !controlCharacter.test(email);
  return isPlain && isAddress.test(email) && !/^\.|\.\.|\.@/.test(email) ? undefined : 'invalid_format';
}

/** The image that is built from the server's own /usr. */
export const HOST_IMAGE = 'host';

/** Adds the default tag to an image name that has neither a tag nor a digest. */
export const taggedImage = (name: string) =>
  name.includes('@') || name.includes(':', name.lastIndexOf('/') + 1) ? name : `${name}:latest`;

/** An image reference that Docker accepts: `[host[:port]/]path[:tag][@digest]`. */
export function checkImageName(name: string): 'invalid_format' | undefined {
  const label = '[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?';
  const segment = '[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*';
  const digest = '[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}';
  const reference = new RegExp(
    `^(?:${label}(?:\\.${label})*(?::[0-9]{1,5})?/)?${segment}(?:/${segment})*(?::\\w[\\w.-]{0,127})?(?:@${digest})?$`,
  );
  return name.length <= 255 && reference.test(name) ? undefined : 'invalid_format';
}
