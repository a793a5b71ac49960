// `assay run`: requests a build of what the remote has, or of the working tree, and follows it.

import { UsageError } from '../../command/command.ts';
import { currentBranch, tryGit } from '../checkout.ts';
import { EXIT } from '../exit-status.ts';
import { sendWorkingTree } from '../local-run.ts';
import { jsonLine, plain } from '../output.ts';
import type { BuildRequest } from '../records.ts';
import { followAndReport } from '../report-request.ts';
import { requestUrl } from '../request-view.ts';
import { projectCommand } from '../session.ts';
import { downloadArtifacts } from './artifacts.ts';

export const run = projectCommand({
  name: 'run',
  summary: 'Builds the current branch, or another ref, and follows the build.',
  positionals: ['[REF|SUITE...]'],
  flags: { local: 'flag', artifacts: 'path', 'no-wait': 'flag', 'cancel-on-interrupt': 'flag' },
  help: [
    'REF is a branch, a tag or a commit hash of the remote. With --local, the working tree is built as it is: changes',
    'that are not committed and new files count, ignored files do not. Nothing is pushed. SUITE names the only suites',
    'to run.',
    '',
    'The exit status is 0 if the build passed, 1 if a suite failed, 3 if it errored or timed out, 4 if it was canceled.',
    'Ctrl-C asks whether to cancel the build.',
    '',
    '  --local               builds the working tree of this checkout',
    '  --artifacts DIRECTORY downloads the files that the builds keep, into a directory for each suite',
    '  --no-wait             prints the address and does not follow the build',
    '  --cancel-on-interrupt Ctrl-C cancels the build and does not ask',
  ],
  async run(session, { flags, positionals, environment }) {
    const { connection, path } = session;
    const artifacts = flags.get('--artifacts');
    if (artifacts !== undefined && flags.has('--no-wait'))
      throw new UsageError('--artifacts waits for the builds: leave out --no-wait');
    const fields = flags.has('--local')
      ? await sendWorkingTree(session, positionals)
      : await chooseCommit(positionals);
    const request = await connection.call<BuildRequest>('POST', `${path}/build_requests`, { fields });
    if (flags.has('--no-wait')) {
      process.stdout.write(flags.has('--json') ? jsonLine(request) : `${requestUrl(session, request)}\n`);
      return EXIT.passed;
    }
    const status = await followAndReport(session, request.id_str, {
      environment,
      isJson: flags.has('--json'),
      onInterrupt: flags.has('--cancel-on-interrupt') ? 'cancel' : 'ask',
    });
    if (artifacts !== undefined && status !== EXIT.interrupted)
      await downloadArtifacts(session, request.id_str, artifacts);
    return status;
  },
});

async function chooseCommit([given, ...others]: readonly string[]) {
  if (others.length > 0) throw new UsageError('name one REF; suites can be named with --local only');
  const ref = given ?? (await defaultRef());
  await remarkUnpushed(ref);
  return { commit_ref: ref };
}

/** The branch of the checkout, or the commit if there is none. */
async function defaultRef(): Promise<string> {
  const ref = (await currentBranch()) ?? (await tryGit(['rev-parse', '--verify', '--quiet', 'HEAD']));
  if (ref === undefined)
    throw new UsageError('this is not a checkout: name a branch, as in "assay run main"');
  return ref;
}

/** The server builds what the remote has, which may be older than the branch here. */
async function remarkUnpushed(ref: string): Promise<void> {
  const local = `refs/heads/${ref}`;
  const remote = `refs/remotes/origin/${ref}`;
  if ((await tryGit(['rev-parse', '--verify', '--quiet', local])) === undefined) return;
  const count = await tryGit(['rev-list', '--count', `${remote}..${local}`, '--']);
  const name = plain(ref);
  const what =
    count === undefined
      ? `${name} has not been pushed from here`
      : count === '1'
        ? `1 commit of ${name} is not pushed`
        : `${count} commits of ${name} are not pushed`;
  if (count !== '0')
    process.stderr.write(
      `assay: ${what}: the server builds what the remote has; "assay run --local" runs your working tree\n`,
    );
}
