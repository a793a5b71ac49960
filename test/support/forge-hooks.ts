// Sends push hooks as the forges do: their headers, bodies and signatures, written from their documentation.
import { createHmac, randomUUID } from 'node:crypto';
import { sign } from '../../src/domain/webhook/signature.ts';

export const ZEROS = '0'.repeat(40);

/** A recognizable hash: `hashOf(7)` is 40 hex digits. */
export const hashOf = (seed: number) => createHmac('sha1', 'hash').update(String(seed)).digest('hex');

export type Change = { ref: string; before: string; after: string };
export type Pull = {
  number: number;
  hash: string;
  fork: boolean;
  action: 'opened' | 'reopened' | 'updated' | 'edited';
};
export type Envelope = { headers: Record<string, string>; body: string };

export type ForgeName = 'github' | 'gitea' | 'forgejo' | 'gogs' | 'gitlab' | 'gitlab-signed' | 'bitbucket';

type Forge = {
  push(repository: string, change: Change, by: string): Envelope;
  pull?(repository: string, pull: Pull, by: string): Envelope;
  ping?(): Envelope;
  /** An event of which nothing is built. */
  other(repository: string): Envelope;
  /** `payload` is the JSON text, `body` what is sent: the same, or a form. */
  sign(payload: string, body: string, secret: string): Record<string, string>;
};

const sha256 = (secret: string, text: string) => createHmac('sha256', secret).update(text).digest('hex');
const sha1 = (secret: string, text: string) => createHmac('sha1', secret).update(text).digest('hex');

const envelope = (headers: Record<string, string>, body: unknown): Envelope => ({
  headers: { 'content-type': 'application/json', ...headers },
  body: JSON.stringify(body),
});

const address = (repository: string) => ({
  full_name: repository,
  name: repository.split('/').at(-1),
  private: true,
  ssh_url: `git@forge.example:${repository}.git`,
  clone_url: `https://forge.example/${repository}.git`,
});

const commitOf = (hash: string) => ({
  id: hash,
  message: 'Change the wording\n\nOf two "sentences" & a link: a=b+c%41',
  timestamp: '2026-11-02T10:00:00+01:00',
  author: { name: 'Ada', email: 'ada@example.com' },
});

const githubHeaders = (event: string) => ({
  'x-github-event': event,
  'x-github-delivery': randomUUID(),
  'x-github-hook-id': '77',
  'user-agent': 'GitHub-Hookshot/044aadd',
});

const github: Forge = {
  push: (repository, change, by) =>
    envelope(githubHeaders('push'), {
      ...change,
      created: change.before === ZEROS,
      deleted: change.after === ZEROS,
      forced: false,
      base_ref: null,
      compare: 'https://forge.example/compare',
      commits: change.after === ZEROS ? [] : [commitOf(change.after)],
      head_commit: change.after === ZEROS ? null : commitOf(change.after),
      repository: { id: 1, ...address(repository) },
      pusher: { name: by, email: `${by}@example.com` },
      sender: { login: by, id: 4 },
    }),
  pull: (repository, pull, by) =>
    envelope(githubHeaders('pull_request'), {
      action: pull.action === 'updated' ? 'synchronize' : pull.action,
      number: pull.number,
      pull_request: pullRequest(repository, pull),
      repository: { id: 1, ...address(repository) },
      sender: { login: by, id: 4 },
    }),
  ping: () =>
    envelope(githubHeaders('ping'), {
      zen: 'Keep it logically awesome.',
      hook_id: 77,
      hook: { type: 'Repository', events: ['push'] },
    }),
  other: repository =>
    envelope(githubHeaders('star'), { action: 'created', repository: address(repository) }),
  sign: (_, body, secret) => ({
    'x-hub-signature': `sha1=${sha1(secret, body)}`,
    'x-hub-signature-256': `sha256=${sha256(secret, body)}`,
  }),
};

const pullRequest = (repository: string, pull: Pull) => ({
  id: 900 + pull.number,
  number: pull.number,
  title: 'Improve it',
  state: 'open',
  head: {
    ref: 'improve',
    sha: pull.hash,
    repo: address(pull.fork ? `somebody/${repository.split('/').at(-1)}` : repository),
  },
  base: { ref: 'main', sha: hashOf(0), repo: address(repository) },
});

/** Gitea and its relatives send the headers of all their ancestors, and both signatures of GitHub. */
function giteaFamily(name: 'gitea' | 'forgejo' | 'gogs'): Forge {
  const ancestors = { gogs: ['gogs'], gitea: ['gitea', 'gogs'], forgejo: ['forgejo', 'gitea', 'gogs'] }[name];
  const headers = (event: string, type = event) => {
    const delivery = randomUUID();
    const names = name === 'gogs' ? ancestors : [...ancestors, 'github'];
    return Object.fromEntries(
      names.flatMap(prefix => [
        [`x-${prefix}-event`, event],
        [`x-${prefix}-event-type`, type],
        [`x-${prefix}-delivery`, delivery],
      ]),
    );
  };
  return {
    push: (repository, change, by) =>
      envelope(headers('push'), {
        ...change,
        compare_url: 'https://forge.example/compare',
        commits: [commitOf(change.after)],
        total_commits: 1,
        head_commit: commitOf(change.after),
        repository: { id: 3, ...address(repository) },
        pusher: { id: 9, login: by, full_name: 'Ada', username: by },
        sender: { id: 9, login: by },
      }),
    pull: (repository, pull, by) =>
      envelope(headers('pull_request', pull.action === 'updated' ? 'pull_request_sync' : 'pull_request'), {
        action: pull.action === 'updated' ? 'synchronized' : pull.action,
        number: pull.number,
        pull_request: pullRequest(repository, pull),
        repository: { id: 3, ...address(repository) },
        sender: { id: 9, login: by },
      }),
    // A new branch is announced twice: by `create` and by `push`.
    other: repository =>
      envelope(headers('create'), {
        ref: 'new-branch',
        ref_type: 'branch',
        sha: hashOf(1),
        repository: address(repository),
      }),
    // The JSON text is signed, also when a form is sent.
    sign: (payload, _, secret) => ({
      ...Object.fromEntries(ancestors.map(prefix => [`x-${prefix}-signature`, sha256(secret, payload)])),
      ...(name === 'gogs'
        ? {}
        : {
            'x-hub-signature': `sha1=${sha1(secret, payload)}`,
            'x-hub-signature-256': `sha256=${sha256(secret, payload)}`,
          }),
    }),
  };
}

const gitlabHeaders = (event: string) => ({
  'x-gitlab-event': event,
  'x-gitlab-event-uuid': randomUUID(),
  'x-gitlab-webhook-uuid': 'cb4c1c3a-2c1e-4bd4-9d2c-4e3b52b1f0aa',
  'x-gitlab-instance': 'https://forge.example',
});

const gitlabProject = (repository: string) => ({
  id: 15,
  name: repository.split('/').at(-1),
  git_ssh_url: `git@forge.example:${repository}.git`,
  path_with_namespace: repository,
  default_branch: 'main',
});

const gitlab: Forge = {
  push: (repository, change, by) => {
    const isTag = change.ref.startsWith('refs/tags/');
    return envelope(gitlabHeaders(isTag ? 'Tag Push Hook' : 'Push Hook'), {
      object_kind: isTag ? 'tag_push' : 'push',
      event_name: isTag ? 'tag_push' : 'push',
      ...change,
      checkout_sha: change.after === ZEROS ? null : change.after,
      user_id: 4,
      user_name: 'Ada Example',
      user_username: by,
      project_id: 15,
      project: gitlabProject(repository),
      commits: [],
      total_commits_count: 0,
    });
  },
  pull: (repository, pull, by) =>
    envelope(gitlabHeaders('Merge Request Hook'), {
      object_kind: 'merge_request',
      user: { name: 'Ada Example', username: by },
      project: gitlabProject(repository),
      object_attributes: {
        id: 6_000 + pull.number,
        iid: pull.number,
        source_branch: 'improve',
        target_branch: 'main',
        source_project_id: pull.fork ? 16 : 15,
        target_project_id: 15,
        last_commit: commitOf(pull.hash),
        action: { opened: 'open', reopened: 'reopen', updated: 'update', edited: 'update' }[pull.action],
        ...(pull.action === 'updated' ? { oldrev: hashOf(2) } : {}),
      },
    }),
  other: repository =>
    envelope(gitlabHeaders('Pipeline Hook'), {
      object_kind: 'pipeline',
      project: gitlabProject(repository),
    }),
  sign: (_, __, secret) => ({ 'x-gitlab-token': secret }),
};

const gitlabSigned: Forge = {
  ...gitlab,
  sign: (_, body, secret) => {
    const id = randomUUID();
    const timestamp = Math.floor(Date.now() / 1_000);
    return {
      'webhook-id': id,
      'idempotency-key': id,
      'webhook-timestamp': String(timestamp),
      'webhook-signature': sign({ id, timestamp, body, secret }),
    };
  },
};

const bitbucketHeaders = (event: string) => ({
  'x-event-key': event,
  'x-request-id': randomUUID(),
  'user-agent': 'Atlassian HttpClient 1.0.0 / Bitbucket-8.15.0',
});

const bitbucketRepository = (repository: string) => {
  const [key = '', slug = ''] = repository.split('/');
  return { slug, id: 84, name: slug, scmId: 'git', project: { key: key.toUpperCase(), id: 84 } };
};

/** Bitbucket reports all refs of a push in one call. */
export function bitbucketPush(repository: string, changes: Change[], by: string): Envelope {
  return envelope(bitbucketHeaders('repo:refs_changed'), {
    eventKey: 'repo:refs_changed',
    date: '2026-11-02T10:00:00+1000',
    actor: { name: by, displayName: 'Ada Example', id: 1 },
    repository: bitbucketRepository(repository),
    changes: changes.map(({ ref, before, after }) => ({
      ref: {
        id: ref,
        displayId: ref.split('/').slice(2).join('/'),
        type: ref.startsWith('refs/tags/') ? 'TAG' : 'BRANCH',
      },
      refId: ref,
      fromHash: before,
      toHash: after,
      type: before === ZEROS ? 'ADD' : after === ZEROS ? 'DELETE' : 'UPDATE',
    })),
  });
}

const bitbucket: Forge = {
  push: (repository, change, by) => bitbucketPush(repository, [change], by),
  pull: (repository, pull, by) => {
    const event = {
      opened: 'pr:opened',
      reopened: 'pr:reopened',
      updated: 'pr:from_ref_updated',
      edited: 'pr:modified',
    }[pull.action];
    const [, slug] = repository.split('/');
    return envelope(bitbucketHeaders(event), {
      eventKey: event,
      actor: { name: by, id: 1 },
      pullRequest: {
        id: pull.number,
        state: 'OPEN',
        fromRef: {
          id: 'refs/heads/improve',
          latestCommit: pull.hash,
          repository: bitbucketRepository(pull.fork ? `~somebody/${slug}` : repository),
        },
        toRef: {
          id: 'refs/heads/main',
          latestCommit: hashOf(0),
          repository: bitbucketRepository(repository),
        },
      },
    });
  },
  ping: () => envelope(bitbucketHeaders('diagnostics:ping'), { test: true }),
  other: repository =>
    envelope(bitbucketHeaders('repo:forked'), { repository: bitbucketRepository(repository) }),
  sign: (_, body, secret) => ({ 'x-hub-signature': `sha256=${sha256(secret, body)}` }),
};

export const forges: Record<ForgeName, Forge> = {
  github,
  gitea: giteaFamily('gitea'),
  forgejo: giteaFamily('forgejo'),
  gogs: giteaFamily('gogs'),
  gitlab,
  'gitlab-signed': gitlabSigned,
  bitbucket,
};

export const forgeNames = Object.keys(forges) as ForgeName[];

/** The same hook as a form, as GitHub and Gitea send it when they are asked to. */
export function asForm(hook: Envelope): Envelope {
  return {
    headers: { ...hook.headers, 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ payload: hook.body }).toString(),
  };
}

/** Adds the forge's signature. */
export function signed(
  forge: ForgeName,
  hook: Envelope,
  secret: string,
  options: { form?: boolean } = {},
): Envelope {
  const sent = options.form ? asForm(hook) : hook;
  return {
    headers: { ...sent.headers, ...forges[forge].sign(hook.body, sent.body, secret) },
    body: sent.body,
  };
}

/** What the post-receive script sends: the lines that git passes to it, and the token. */
export function postReceive(changes: Change[], secret: string): Envelope {
  return {
    headers: { 'content-type': 'application/x-www-form-urlencoded', 'x-assay-token': secret },
    body: changes.map(({ ref, before, after }) => `${before} ${after} ${ref}\n`).join(''),
  };
}
