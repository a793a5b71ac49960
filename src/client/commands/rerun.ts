// `assay rerun` and `assay cancel`: start suites again, or end what has not ended.

import type { Command } from '../../command/command.ts';
import { isFinishedBuild, isFinishedRequest, isRerunCandidate } from '../../domain/build.ts';
import { ServerError } from '../connection.ts';
import { EXIT, refused } from '../exit-status.ts';
import { buildCommand, explainNoBuilds, findTarget, ofSuite, pageOf, type Target } from '../find-build.ts';
import { jsonLine, paintState, plain, stateText, styleOf, table, write } from '../output.ts';
import type { Build, BuildRequest, SuiteBuild } from '../records.ts';
import type { ProjectSession } from '../session.ts';

export const rerun: Command = buildCommand({
  name: 'rerun',
  summary: 'Runs the suites of a build request again, on the same commit.',
  positionals: ['[BUILD|REQUEST]'],
  flags: { failed: 'flag' },
  help: [
    '  assay rerun                        all suites of the newest build request of this branch',
    '  assay rerun --failed               only those that did not pass',
    '  assay rerun BUILD                  only the suite of this build',
    '',
    '  --failed              only suites that failed, errored or timed out',
  ],
  async run(session, invocation) {
    const { flags, environment } = invocation;
    const target = await findTarget(session, invocation);
    const chosen = chooseRerun(target, flags);
    const style = styleOf(environment);
    const started: SuiteBuild[] = [];
    for (const { id_str: id, suite } of chosen) {
      const again = await rerunBuild(session, id);
      if (!again)
        process.stderr.write(`assay: the suite ${plain(suite)} was deleted: it does not run again\n`);
      else started.push({ ...again, suite });
    }
    if (started.length === 0) throw refused('no suite was started again');
    await write(
      flags.has('--json')
        ? started.map(jsonLine).join('')
        : table(
            started.map(({ build_state: state, id_str: id, suite }) => [
              paintState(style, state),
              id,
              plain(suite),
            ]),
          )
            .map(line => `${line}\n`)
            .join(''),
    );
    if (style.isTerminal && !flags.has('--json'))
      process.stderr.write(
        `${pageOf(session, { ...target, build: undefined })}\n"assay watch" follows it.\n`,
      );
    return EXIT.passed;
  },
});

function chooseRerun({ request, build, builds }: Target, flags: ReadonlyMap<string, string>): SuiteBuild[] {
  const among = build ? [build] : ofSuite(builds, flags.get('--suite'));
  if (among.length === 0)
    throw refused(
      `${explainNoBuilds(request)}. "assay run ${plain(request.commit_ref)}" starts another request`,
    );
  const wanted = flags.has('--failed')
    ? among.filter(({ build_state: state }) => isRerunCandidate(state))
    : among;
  if (wanted.length === 0) throw refused('no build has failed: without --failed all suites run again');
  const ended = wanted.filter(({ build_state: state }) => isFinishedBuild(state));
  if (ended.length > 0) return ended;
  throw refused('the builds have not ended: "assay cancel" ends them');
}

/** Undefined if the suite was deleted. */
async function rerunBuild({ connection, path }: ProjectSession, id: string): Promise<Build | undefined> {
  try {
    return await connection.call<Build>('POST', `${path}/builds/${id}/rerun`);
  } catch (error) {
    if (error instanceof ServerError && error.status === 404) return undefined;
    throw error;
  }
}

export const cancel: Command = buildCommand({
  name: 'cancel',
  summary: 'Cancels a build request, or a build.',
  positionals: ['[BUILD|REQUEST]'],
  flags: {},
  help: [
    '  assay cancel                       the newest build request of this branch',
    '  assay cancel --suite NAME          only this suite of it',
    '',
  ],
  async run({ connection, path, ...rest }, invocation) {
    const target = await findTarget({ connection, path, ...rest }, invocation);
    const suite = invocation.flags.get('--suite');
    const build = target.build ?? (suite === undefined ? undefined : ofSuite(target.builds, suite)[0]);
    const { id_str: id, build_state: state } = build ?? target.request;
    const hasEnded = build
      ? isFinishedBuild(build.build_state)
      : isFinishedRequest(target.request.build_state);
    const record = await connection.call<Build | BuildRequest>(
      'POST',
      `${path}/${build ? 'builds' : 'build_requests'}/${id}/cancel`,
    );
    const what = build ? `build ${id} of ${plain(build.suite)}` : `build request ${id}`;
    if (invocation.flags.has('--json')) await write(jsonLine(record));
    else
      await write(
        hasEnded
          ? `The ${what} has ended already: ${stateText(state)}.\n`
          : `The ${what} is being canceled.\n`,
      );
    return EXIT.passed;
  },
});
