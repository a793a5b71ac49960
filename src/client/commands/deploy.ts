// `assay deploy`: pushes a commit with a deploy strategy of the project, and follows the deploy.

import { askYesNo, type Invocation, UsageError } from '../../command/command.ts';
import { tryGit } from '../checkout.ts';
import { EXIT, refused } from '../exit-status.ts';
import { jsonLine, plain, write } from '../output.ts';
import type { BuildRequest, Commit, Deploy, DeployStrategy } from '../records.ts';
import { followAndReportDeploy } from '../report-request.ts';
import { commitTitle } from '../request-view.ts';
import { type ProjectSession, projectCommand, take } from '../session.ts';

/** How many commits to look at for a hash. */
const MAX_COMMITS = 5_000;

export const deploy = projectCommand({
  name: 'deploy',
  summary: 'Deploys a commit that passed, and follows the deploy.',
  positionals: ['[STRATEGY]'],
  flags: { commit: 'value', yes: 'flag', 'no-wait': 'flag' },
  help: [
    'STRATEGY is a name or an ID; without it, the only one of the project. The exit status is 0 if it was deployed,',
    '1 if it failed, 4 if it was canceled.',
    '',
    '  --commit HASH         the commit [the newest one of the branch of the strategy that passed]',
    '  --yes                 does not ask whether to deploy',
    '  --no-wait             prints the address and does not follow the deploy',
  ],
  async run(session, invocation) {
    const { flags, environment } = invocation;
    const { connection, path, pageUrl } = session;
    const strategy = await chooseStrategy(session, invocation.positionals[0]);
    const { repository_url: url, local_branch: branch, remote_branch: remoteBranch } = strategy.options;
    const given = flags.get('--commit');
    const commitId =
      given === undefined ? await newestPassed(session, branch) : await findCommit(session, given);
    const commit = await connection.call<Commit>('GET', `${path}/commits/${commitId}`);
    const title = `${commitTitle(commit)} to ${remoteBranch} of ${url}`;
    if (!(await isConfirmed(invocation, strategy, commit, title))) return EXIT.canceled;
    const created = await connection.call<Deploy>('POST', `${path}/deploys`, {
      fields: { deploy_strategy_id: strategy.id_str, commit_id: commitId },
    });
    if (flags.has('--no-wait')) {
      await write(flags.has('--json') ? jsonLine(created) : `${pageUrl}/deploys/${created.id_str}\n`);
      return EXIT.passed;
    }
    return followAndReportDeploy(
      session,
      created.id_str,
      { strategy: strategy.name, title },
      { environment, isJson: flags.has('--json'), onInterrupt: 'ask' },
    );
  },
});

async function chooseStrategy(session: ProjectSession, given: string | undefined): Promise<DeployStrategy> {
  const { connection, path, project } = session;
  const all = await take(
    connection.list<Pick<DeployStrategy, 'id_str' | 'name'>>(`${path}/deploy_strategies`, {
      query: { limit: '100' },
    }),
    Number.POSITIVE_INFINITY,
  );
  const wanted = given?.trim().toLowerCase();
  const found = all.filter(
    ({ id_str: id, name }) => wanted === undefined || id === wanted || name.toLowerCase() === wanted,
  );
  const [only, ...others] = found;
  const list = all.map(({ id_str: id, name }) => `  ${id}  ${plain(name)}`).join('\n');
  if (all.length === 0)
    throw refused(`the project ${plain(project.name)} has no deploy strategy: its page creates one`);
  if (!only) throw refused(`there is no deploy strategy ${JSON.stringify(given)}. There are:\n${list}`);
  if (others.length > 0) throw new UsageError(`choose a deploy strategy:\n${list}`);
  return connection.call<DeployStrategy>('GET', `${path}/deploy_strategies/${only.id_str}`);
}

async function newestPassed({ connection, path }: ProjectSession, branch: string): Promise<string> {
  const query = { branch, state: 'passed', limit: '1' };
  const [newest] = await take(connection.list<BuildRequest>(`${path}/build_requests`, { query }), 1);
  if (newest) return newest.commit_id_str;
  throw refused(
    `no commit of the branch ${plain(branch)} has passed yet: "assay run ${plain(branch)}" builds it, --commit chooses another commit`,
  );
}

/** Anything that this checkout knows, such as HEAD or a tag, or the beginning of a hash. */
async function findCommit({ connection, path, project }: ProjectSession, given: string): Promise<string> {
  const known = await tryGit(['rev-parse', '--verify', '--quiet', '--end-of-options', `${given}^{commit}`]);
  const hash = known ?? given.toLowerCase();
  if (!/^[0-9a-f]{7,40}$/.test(hash))
    throw new UsageError(`${JSON.stringify(given)} is neither a hash nor a commit of this checkout`);
  const commits = await take(
    connection.list<Pick<Commit, 'id_str' | 'ref'>>(`${path}/commits`, { query: { limit: '1000' } }),
    MAX_COMMITS,
  );
  const commit = commits.find(({ ref }) => ref.startsWith(hash));
  if (commit) return commit.id_str;
  throw refused(
    `the project ${plain(project.name)} has not built the commit ${hash.slice(0, 10)}: "assay run ${hash.slice(0, 10)}" builds it`,
  );
}

async function isConfirmed(
  { flags }: Invocation,
  strategy: DeployStrategy,
  commit: Commit,
  title: string,
): Promise<boolean> {
  if (flags.has('--yes')) return true;
  const state = commit.build_state === 'passed' ? '' : `, which has not passed (${commit.build_state})`;
  return askYesNo(
    `Deploy ${plain(title)} with ${plain(strategy.name)}${state}? [y/N] `,
    'add --yes to deploy without a question',
  );
}
