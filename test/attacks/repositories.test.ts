// Hostile repositories: names that git accepts and a shell would execute, and content that would be executed by a
// fetch, a checkout or a push. Nothing is executed, neither on the host nor on the remote.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { ProjectJourney } from '../support/journey.ts';
import { type ServedAppliance, serveAppliance } from '../support/served-appliance.ts';
import { attacks } from './table.ts';

const outside = mkdtempSync(join(tmpdir(), 'assay-canary-'));
const canary = join(outside, 'owned');
const touch = `touch$IFS${canary}`;

let appliance: ServedAppliance;
let project: ProjectJourney;
let suite: string;
before(async () => {
  appliance = await serveAppliance({ ASSAY_CONCURRENCY: '3' });
  project = await appliance.project();
  suite = await project.suite({
    command: 'printf "on <%s>\\n" "$ASSAY_BRANCH"; git status --short; git branch --show-current',
  });
});
after(async () => {
  await appliance?.close();
  rmSync(outside, { recursive: true, force: true });
});
const nothingActed = () =>
  assert.deepEqual(readdirSync(outside), [], 'a command of the repository was executed');

/** Names that git and Assay accept. They must be treated as plain names. */
const branches = [
  `$(${touch})`,
  `\`${touch}\``,
  `;${touch};`,
  `a'$(${touch})'b`,
  `a"$(${touch})"b`,
  `a>${canary}`,
  '%s%n#{x}{a,b}(x)',
  '<script>alert(1)</script>',
  'x/refs/heads/main',
  'a--upload-pack=x',
];
attacks(
  'a branch that looks like a command is built and deployed as a branch',
  branches,
  async branch => {
    const [head] = project.repository.hashes as [string];
    project.repository.git('update-ref', `refs/heads/${branch}`, head);
    const { request, of } = await project.run(branch);
    assert.equal(request.build_state, 'passed', JSON.stringify(request.error));
    const { log } = of(suite);
    assert.ok(log.includes(`on <${branch}>\n`), log);
    assert.ok(log.endsWith(`\n${branch}\n`), log);
    nothingActed();
  },
  { concurrency: 3 },
);

test('a branch that looks like a command is pushed to as a branch', async () => {
  const target = appliance.repository();
  const [hash] = project.repository.hashes as [string];
  const { commit_id_str: commitId } = (await project.run()).request;
  for (const remote of branches.slice(0, 6)) {
    const strategy = await project.ask('POST', '/deploy_strategies', {
      name: remote,
      strategy_type: 'git',
      'options[repository_url]': target.url,
      'options[local_branch]': 'main',
      'options[remote_branch]': remote,
    });
    const deploy = await project.ask('POST', '/deploys', {
      deploy_strategy_id: strategy.id_str as string,
      commit_id: commitId as string,
    });
    const ended = await project.until(async () => {
      const found = await project.ask('GET', `/deploys/${deploy.id_str}`);
      return !['enqueued', 'deploying'].includes(found.state as string) && found;
    });
    assert.equal(ended.state, 'deployed', String(ended.error));
    assert.equal(target.git('rev-parse', `refs/heads/${remote}`), hash);
  }
  nothingActed();
});

/** Content that a careless git executes. `$CANARY` is a file of the host. */
const contents: Record<string, Record<string, string>> = {
  'a submodule whose URL is a command': {
    '.gitmodules': `[submodule "x"]\n\tpath = x\n\turl = ext::sh -c ${touch}\n\tupdate = !${touch}\n`,
  },
  'a submodule whose URL is an option': {
    '.gitmodules': `[submodule "x"]\n\tpath = x\n\turl = -u${touch}\n`,
  },
  'a filter that runs a command': {
    '.gitattributes': '* filter=evil diff=evil merge=evil\n',
    '.gitconfig': `[filter "evil"]\n\tsmudge = ${touch}\n`,
  },
  'a Git LFS file': {
    '.gitattributes': '*.bin filter=lfs\n',
    '.lfsconfig': '[lfs]\n\turl = http://127.0.0.1/\n',
  },
  'hooks in the working tree': {
    'hooks/post-checkout': `#!/bin/sh\n${touch}\n`,
    '.githooks/post-checkout': `#!/bin/sh\n${touch}\n`,
  },
  'a repository inside': {
    'x.git/config': `[core]\n\tfsmonitor = ${touch}\n`,
    'x.git/HEAD': 'ref: refs/heads/main\n',
  },
  'file names that are commands': { [`$(${touch.replaceAll('/', '_')})`]: 'x', '-rf': 'x', '--help': 'x' },
};
attacks(
  'content of a repository is not executed when it is fetched and checked out',
  contents,
  async files => {
    const theirs = await appliance.project(appliance.repository({ message: 'Hostile\n', files }));
    await theirs.suite({ command: 'git status --short; ls -A | wc -l' });
    const { request } = await theirs.run();
    // Git itself refuses to store some attacks.
    if (request.build_state === 'errored') assert.match(request.error as string, /object|damage|harm/i);
    else assert.equal(request.build_state, 'passed');
    nothingActed();
  },
  { concurrency: 3 },
);

test('hooks, alternates and configuration of the remote are not used on the server', async () => {
  const theirs = await appliance.project();
  const { directory } = theirs.repository;
  for (const hook of ['post-checkout', 'post-merge', 'reference-transaction', 'pre-auto-gc'])
    writeFileSync(join(directory, 'hooks', hook), `#!/bin/sh\ntouch ${canary}\n`, { mode: 0o755, flag: 'w' });
  theirs.repository.git('config', 'core.sshCommand', `sh -c 'touch ${canary}'`);
  theirs.repository.git('config', 'core.fsmonitor', `touch ${canary}`);
  const { build } = await theirs.runOne({
    command: 'git config --get-regexp "ssh|fsmonitor" ; ls .git/hooks 2>/dev/null; true',
  });
  assert.equal(build.build_state, 'passed');
  assert.equal(existsSync(canary), false);
});

const messages = [
  '\u001b]0;owned\u0007',
  '<script>alert(1)</script>',
  '[assay] passed',
  '%s%n$(id)`id`',
  '\u202edetrevni',
];
attacks(
  'a message, an author and their names are plain text',
  messages,
  async text => {
    const theirs = await appliance.project(
      appliance.repository({
        message: `${text}\n`,
        author: `${text.replace(/[<>\n]/g, '')} <a@example.test>`,
        files: { a: 'x' },
      }),
    );
    await theirs.suite({ command: 'git log -1 --format=%s >/dev/null' });
    const { request } = await theirs.run();
    assert.equal(request.build_state, 'passed', JSON.stringify(request.error));
    const commit = await theirs.ask('GET', `/commits/${request.commit_id_str}`);
    assert.equal(commit.scm_message ?? commit.message, text);
  },
  { concurrency: 3 },
);
