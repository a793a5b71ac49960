// Reads push hooks of the forges and of plain git: which refs changed, in which repository, and who pushed.
// Whatever is not understood is reported as such: the caller then looks at the repository itself.

import { checkBranch } from '../names.ts';

export type HookKind = 'github' | 'gitea' | 'gitlab' | 'bitbucket' | 'git';

/** A change of a branch or tag, with its full name. `before` is null for a new ref, `after` for a deleted one. */
export type RefChange = { ref: string; before: string | null; after: string | null };

export type HookContent =
  /** The forge tests the connection. */
  | { type: 'ping' }
  /** Nothing that a build could start from. */
  | { type: 'ignored' }
  /** `repository` is its path on the forge; null where the hook does not name it. */
  | { type: 'push'; repository: string | null; pushedBy: string | null; changes: RefChange[] }
  /** A pull request was opened, reopened or got new commits. `ref` is where its commits can be fetched. */
  | {
      type: 'pull_request';
      repository: string;
      pushedBy: string | null;
      number: number;
      ref: string;
      hash: string;
      fromFork: boolean;
    }
  /** Perhaps a push, but not one that can be trusted or read: look at the repository. */
  | { type: 'unclear' }
  /** A forge always sends JSON; this is none. */
  | { type: 'malformed' };

export type Hook = { kind: HookKind; event: string; delivery: string | null; content: HookContent };

/** A larger body is not read but a reason to look: to parse it would block everybody else for too long. */
export const HOOK_READ_BYTES = 1024 * 1024;
/** More refs in one call than these are found by looking at the repository. */
const MAX_CHANGES = 100;
/** Of texts that are stored as a forge sends them: the name of a person, a delivery, an event. */
const MAX_TEXT = 100;
const FORM_START = 'payload=';

type Forge = {
  kind: HookKind;
  /** The first of these headers that is present tells the kind and names the event. */
  eventHeaders: readonly string[];
  deliveryHeaders: readonly string[];
  /** The event's name, where it is not the header's value. */
  event?: (header: string, body: unknown) => string;
  events: Readonly<Record<string, (body: unknown) => HookContent>>;
};

const ping = (): HookContent => ({ type: 'ping' });

/** In this order: Gitea also sends the headers of GitHub. */
const forges: readonly Forge[] = [
  {
    kind: 'gitea',
    eventHeaders: ['x-forgejo-event', 'x-gitea-event', 'x-gogs-event'],
    deliveryHeaders: ['x-forgejo-delivery', 'x-gitea-delivery', 'x-gogs-delivery'],
    events: { push: githubPush, pull_request: githubPull, pull_request_sync: githubPull },
  },
  {
    kind: 'github',
    eventHeaders: ['x-github-event'],
    deliveryHeaders: ['x-github-delivery'],
    events: { ping, push: githubPush, pull_request: githubPull },
  },
  {
    kind: 'gitlab',
    eventHeaders: ['x-gitlab-event'],
    // X-Gitlab-Webhook-UUID names the hook, not the delivery.
    deliveryHeaders: ['webhook-id', 'idempotency-key', 'x-gitlab-event-uuid'],
    event: (header, body) => (header === 'System Hook' ? (textAt(body, 'object_kind') ?? header) : header),
    events: {
      'Push Hook': gitlabPush,
      'Tag Push Hook': gitlabPush,
      'Merge Request Hook': gitlabPull,
      push: gitlabPush,
      tag_push: gitlabPush,
      merge_request: gitlabPull,
    },
  },
  {
    kind: 'bitbucket',
    eventHeaders: ['x-event-key'],
    deliveryHeaders: ['x-request-id'],
    events: {
      'diagnostics:ping': ping,
      'repo:refs_changed': bitbucketPush,
      // Bitbucket Cloud. Its push has another form, so it is a reason to look.
      'repo:push': bitbucketPush,
      'pr:opened': bitbucketPull,
      'pr:reopened': bitbucketPull,
      'pr:from_ref_updated': bitbucketPull,
    },
  },
];

/**
 * Reads a hook that is verified already. It never throws, whatever the body is. A body that was too large to keep is
 * null; an empty one asks for a look at the repository.
 */
export function readHook(headers: Headers, body: Uint8Array | null): Hook {
  const forge = forges.find(({ eventHeaders }) => firstHeader(headers, eventHeaders) !== null);
  if (!forge)
    return {
      kind: 'git',
      event: 'push',
      delivery: null,
      content: body ? readLines(body) : { type: 'unclear' },
    };
  const header = firstHeader(headers, forge.eventHeaders) ?? '';
  const delivery = plainText(firstHeader(headers, forge.deliveryHeaders));
  const answer = (event: string, content: HookContent): Hook => ({
    kind: forge.kind,
    event: plainText(event) ?? 'unknown',
    delivery,
    content,
  });
  if (body === null || body.length === 0) return answer(header, { type: 'unclear' });
  const form = createFormDecoder();
  const payload = form.decode(body);
  const json = parseJson(form.isForm() ? payload : body);
  if (json === undefined) return answer(header, { type: 'malformed' });
  const event = forge.event ? forge.event(header, json) : header;
  const read = Object.hasOwn(forge.events, event) ? forge.events[event] : undefined;
  return answer(event, read ? read(json) : { type: 'ignored' });
}

/**
 * Whether the repository that a hook names is the project's, compared loosely: without the host, `.git`, a leading
 * slash, and upper and lower case.
 */
export function isSameRepository(repositoryUrl: string, path: string): boolean {
  const normalized = (text: string) =>
    text
      .toLowerCase()
      .replace(/\.git$/, '')
      .replace(/^\/+/, '');
  return normalized(repositoryUrl.slice(repositoryUrl.indexOf(':') + 1)) === normalized(path);
}

/**
 * Decodes the JSON text inside `payload=…`, the form that forges send on request. Bodies come in pieces, so that one
 * large body does not block everybody else. `isForm` is false for any other body, of which nothing is decoded.
 */
export function createFormDecoder(): { isForm: () => boolean; decode: (chunk: Uint8Array) => Uint8Array } {
  let state: 'start' | 'payload' | 'end' | 'other' = 'start';
  // The end of the last piece: the start of the form's name or of an escape.
  let rest = Buffer.alloc(0);
  const decode = (chunk: Uint8Array): Uint8Array => {
    if (state === 'other' || state === 'end') return Buffer.alloc(0);
    let text = Buffer.concat([rest, chunk]);
    rest = Buffer.alloc(0);
    if (state === 'start') {
      const start = text.toString('latin1', 0, FORM_START.length);
      state = start === FORM_START ? 'payload' : FORM_START.startsWith(start) ? 'start' : 'other';
      if (state === 'start') rest = text;
      if (state !== 'payload') return Buffer.alloc(0);
      text = text.subarray(FORM_START.length);
    }
    const end = text.indexOf('&');
    if (end !== -1) {
      state = 'end';
      return percentDecoded(text.subarray(0, end));
    }
    const cut = text.indexOf('%', Math.max(0, text.length - 2));
    if (cut !== -1) rest = text.subarray(cut);
    return percentDecoded(text.subarray(0, text.length - rest.length));
  };
  return { isForm: () => state === 'payload' || state === 'end', decode };
}

function percentDecoded(text: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(text.length);
  let length = 0;
  for (let index = 0; index < text.length; index += 1) {
    const byte = text[index] as number;
    const high = byte === 0x25 ? hexDigit(text[index + 1]) : -1;
    const low = high === -1 ? -1 : hexDigit(text[index + 2]);
    if (low === -1) bytes[length] = byte === 0x2b ? 0x20 : byte;
    else {
      bytes[length] = high * 16 + low;
      index += 2;
    }
    length += 1;
  }
  return bytes.subarray(0, length);
}

function hexDigit(byte: number | undefined): number {
  if (byte === undefined) return -1;
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const letter = byte | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) return undefined;
    throw error;
  }
}

/** The lines that git passes to a post-receive hook: `<old> <new> <ref>`. Without the last line's end it may be cut. */
function readLines(body: Uint8Array): HookContent {
  const lines = Buffer.from(body.subarray(0, MAX_CHANGES * 1_024))
    .toString()
    .split('\n');
  if (lines.pop() !== '' || body.length > MAX_CHANGES * 1_024) return { type: 'unclear' };
  return pushOf(
    null,
    null,
    lines.map(line => {
      const [, before, after, ref] = /^(\S+) (\S+) (\S+)$/.exec(line) ?? [];
      return { ref, before, after };
    }),
  );
}

function githubPush(body: unknown): HookContent {
  return forgePush(
    textAt(body, 'repository', 'full_name'),
    textAt(body, 'pusher', 'login') ?? textAt(body, 'pusher', 'name') ?? textAt(body, 'sender', 'login'),
    [{ ref: at(body, 'ref'), before: at(body, 'before'), after: at(body, 'after') }],
  );
}

function githubPull(body: unknown): HookContent {
  if (!['opened', 'reopened', 'synchronize', 'synchronized'].includes(textAt(body, 'action') ?? ''))
    return { type: 'ignored' };
  const number = at(body, 'pull_request', 'number');
  return pullOf({
    repository: textAt(body, 'repository', 'full_name'),
    pushedBy: textAt(body, 'sender', 'login'),
    number,
    ref: `refs/pull/${number}/head`,
    hash: at(body, 'pull_request', 'head', 'sha'),
    from: at(body, 'pull_request', 'head', 'repo', 'full_name'),
    to: at(body, 'pull_request', 'base', 'repo', 'full_name'),
  });
}

function gitlabPush(body: unknown): HookContent {
  return forgePush(
    textAt(body, 'project', 'path_with_namespace'),
    textAt(body, 'user_username') ?? textAt(body, 'user_name'),
    [{ ref: at(body, 'ref'), before: at(body, 'before'), after: at(body, 'after') }],
  );
}

function gitlabPull(body: unknown): HookContent {
  const action = textAt(body, 'object_attributes', 'action') ?? '';
  // An update without a previous commit changed the description, a label or a reviewer.
  const hasCommits = action === 'update' && textAt(body, 'object_attributes', 'oldrev') !== null;
  if (action !== 'open' && action !== 'reopen' && !hasCommits) return { type: 'ignored' };
  const number = at(body, 'object_attributes', 'iid');
  return pullOf({
    repository: textAt(body, 'project', 'path_with_namespace'),
    pushedBy: textAt(body, 'user', 'username'),
    number,
    ref: `refs/merge-requests/${number}/head`,
    hash: at(body, 'object_attributes', 'last_commit', 'id'),
    from: at(body, 'object_attributes', 'source_project_id'),
    to: at(body, 'object_attributes', 'target_project_id'),
  });
}

function bitbucketPush(body: unknown): HookContent {
  const changes = at(body, 'changes');
  if (!Array.isArray(changes)) return { type: 'unclear' };
  return forgePush(
    bitbucketPath(at(body, 'repository')),
    textAt(body, 'actor', 'name'),
    changes.map(change => ({
      ref: at(change, 'ref', 'id'),
      before: at(change, 'fromHash'),
      after: at(change, 'toHash'),
    })),
  );
}

function bitbucketPull(body: unknown): HookContent {
  const number = at(body, 'pullRequest', 'id');
  const to = bitbucketPath(at(body, 'pullRequest', 'toRef', 'repository'));
  return pullOf({
    repository: to,
    pushedBy: textAt(body, 'actor', 'name'),
    number,
    ref: `refs/pull-requests/${number}/from`,
    hash: at(body, 'pullRequest', 'fromRef', 'latestCommit'),
    from: bitbucketPath(at(body, 'pullRequest', 'fromRef', 'repository')),
    to,
  });
}

function bitbucketPath(repository: unknown): string | null {
  const key = textAt(repository, 'project', 'key');
  const slug = textAt(repository, 'slug');
  return key === null || slug === null ? null : `${key}/${slug}`;
}

type UncheckedChange = { [key in keyof RefChange]: unknown };

/** A forge that does not name the repository is not trusted. */
function forgePush(
  repository: string | null,
  pushedBy: string | null,
  changes: UncheckedChange[],
): HookContent {
  return repository === null ? { type: 'unclear' } : pushOf(repository, pushedBy, changes);
}

function pushOf(repository: string | null, pushedBy: string | null, changes: UncheckedChange[]): HookContent {
  if (changes.length === 0 || changes.length > MAX_CHANGES) return { type: 'unclear' };
  const checked = changes.map(checkChange);
  if (checked.includes('invalid')) return { type: 'unclear' };
  const known = checked.filter(change => typeof change === 'object');
  if (known.length === 0) return { type: 'ignored' };
  return { type: 'push', repository, pushedBy: plainText(pushedBy), changes: known };
}

/** `other` is a ref that is neither a branch nor a tag. */
function checkChange({ ref, before, after }: UncheckedChange): RefChange | 'other' | 'invalid' {
  if (typeof ref !== 'string' || !isHash(before) || !isHash(after)) return 'invalid';
  const name = /^refs\/(?:heads|tags)\/(.*)$/s.exec(ref)?.[1];
  if (name === undefined) return ref.startsWith('refs/') ? 'other' : 'invalid';
  if (checkBranch(name) !== undefined) return 'invalid';
  const known = (hash: string) => (/^0+$/.test(hash) ? null : hash);
  const change = { ref, before: known(before), after: known(after) };
  return change.before === null && change.after === null ? 'invalid' : change;
}

function pullOf(pull: {
  repository: string | null;
  pushedBy: string | null;
  number: unknown;
  ref: string;
  hash: unknown;
  from: unknown;
  to: unknown;
}): HookContent {
  const { repository, number, ref, hash, from, to } = pull;
  const isNumber = typeof number === 'number' && Number.isInteger(number) && number > 0 && number < 2 ** 31;
  if (repository === null || !isNumber || !isHash(hash) || to === undefined || to === null)
    return { type: 'unclear' };
  const pushedBy = plainText(pull.pushedBy);
  // A fork that was deleted meanwhile is not named any more.
  return { type: 'pull_request', repository, pushedBy, number, ref, hash, fromFork: from !== to };
}

function isHash(value: unknown): value is string {
  return typeof value === 'string' && /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(value);
}

function firstHeader(headers: Headers, names: readonly string[]): string | null {
  const name = names.find(header => headers.has(header));
  return name === undefined ? null : headers.get(name);
}

function at(value: unknown, ...path: string[]): unknown {
  let found = value;
  for (const key of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key)) return undefined;
    found = (found as Record<string, unknown>)[key];
  }
  return found;
}

/** Text that is not empty. */
function textAt(value: unknown, ...path: string[]): string | null {
  const found = at(value, ...path);
  return typeof found === 'string' && found !== '' ? found : null;
}

/** One line without control or invisible characters, cut to a length that is safe to store and to show. */
function plainText(text: string | null): string | null {
  const line = (text ?? '')
    .slice(0, MAX_TEXT * 4)
    .replaceAll(/[\s\p{C}]+/gu, ' ')
    .trim();
  return line === '' ? null : [...line].slice(0, MAX_TEXT).join('');
}
