// `assay artifacts list` and `get`: the files that builds keep.

import { type Command, CommandError, type Invocation, UsageError } from '../../command/command.ts';
import { sizeText } from '../../command/progress.ts';
import { copyBody } from '../connection.ts';
import { type Download, downloadFiles } from '../download.ts';
import { EXIT, refused } from '../exit-status.ts';
import { buildCommand, findTarget, listBuilds, listRequests, ofSuite } from '../find-build.ts';
import { jsonLine, plain, styleOf, table, write } from '../output.ts';
import type { Artifact, SuiteBuild } from '../records.ts';
import { type ProjectSession, take } from '../session.ts';

/** How many requests of a branch are searched for a build that passed. */
const MAX_REQUESTS = 50;

const list: Command = buildCommand({
  name: 'artifacts list',
  summary: 'Lists the files that builds keep.',
  positionals: ['[BUILD]'],
  flags: {},
  help: [
    '  assay artifacts list               of the newest build request of this branch',
    '  assay artifacts list --branch main of the newest build of main that passed',
    '',
  ],
  async run(session, invocation) {
    const { flags, environment } = invocation;
    const style = styleOf(environment);
    const builds = await findBuilds(session, invocation);
    for (const build of builds) {
      const artifacts = await listArtifacts(session, build);
      if (flags.has('--json')) {
        await write(artifacts.map(one => jsonLine({ ...one, build_id_str: build.id_str })).join(''));
        continue;
      }
      if (style.isTerminal)
        await write(
          `${style.paint('bold', plain(build.suite))}  ${style.paint('dim', `build ${build.id_str}`)}\n`,
        );
      const rows = table(artifacts.map(({ size, path }) => [sizeText(size).padStart(10), plain(path)]));
      await write(rows.map(row => `${row}\n`).join(''));
    }
    return EXIT.passed;
  },
});

const get: Command = buildCommand({
  name: 'artifacts get',
  summary: 'Downloads files that a build keeps.',
  positionals: ['[BUILD]', '[PATH...]'],
  flags: { output: 'path' },
  help: [
    '  assay artifacts get                all files of the newest build request of this branch',
    '  assay artifacts get coverage/      only those below a directory',
    '  assay artifacts get BUILD dist/app --output ~/bin',
    '  assay artifacts get --branch main  of the newest build of main that passed',
    '',
    'Either all files are written or none. Existing ones are replaced.',
    '',
    '  --output DIRECTORY    where the files go, "-" for standard output [.]',
  ],
  async run(session, invocation) {
    const { flags, positionals } = invocation;
    const [first = ''] = positionals;
    const isNamed = /^\d{1,20}$/.test(first);
    const paths = positionals.slice(isNamed ? 1 : 0);
    const builds = await findBuilds(session, { ...invocation, positionals: isNamed ? [first] : [] });
    const [build] = builds;
    if (!build || builds.length > 1)
      throw new UsageError(
        `several suites keep files: choose one with --suite NAME, or a build by its ID:\n${builds.map(({ id_str: id, suite }) => `  ${id}  ${plain(suite)}`).join('\n')}`,
      );
    const chosen = select(await listArtifacts(session, build), paths, build);
    const output = flags.get('--output') ?? '.';
    const files = chosen.map(artifact => artifactDownload(session, build, artifact));
    if (output === '-') return printFile(files);
    await downloadFiles(output, files);
    if (flags.has('--json')) await write(chosen.map(jsonLine).join(''));
    else await write(chosen.map(({ path }) => `${plain(path)}\n`).join(''));
    return EXIT.passed;
  },
});

export const artifactCommands: readonly Command[] = [list, get];

/** Downloads what the builds of a request keep, each into a directory with the name of its suite. */
export async function downloadArtifacts(
  session: ProjectSession,
  requestId: string,
  directory: string,
): Promise<void> {
  const files: Download[] = [];
  for (const build of await listBuilds(session, requestId)) {
    if (build.artifacts === undefined) continue;
    const folder = folderName(build.suite);
    for (const artifact of await listArtifacts(session, build))
      files.push(artifactDownload(session, build, artifact, `${folder}/`));
  }
  if (files.length > 0) await downloadFiles(directory, files);
  process.stderr.write(
    files.length > 0
      ? `assay: stored ${files.length === 1 ? '1 file' : `${files.length} files`} in ${directory}\n`
      : 'assay: no build keeps files: the field "artifacts" of a suite names them\n',
  );
}

/** Of a suite, on every system. */
const folderName = (suite: string) => suite.replaceAll(/[\u0000-\u001f\u007f/\\:*?"<>|]|^\.|[. ]$/g, '_');

async function printFile([file, ...others]: readonly Download[]): Promise<number> {
  if (!file || others.length > 0)
    throw new UsageError('only one file can go to standard output: name its path');
  await copyBody(await file.open());
  return EXIT.passed;
}

/** The builds that keep files: the named one, those of the newest request, or with --branch the newest that passed. */
async function findBuilds(session: ProjectSession, invocation: Invocation): Promise<SuiteBuild[]> {
  const { flags, positionals } = invocation;
  const branch = flags.get('--branch');
  if (positionals.length === 0 && branch !== undefined && !flags.has('--local')) {
    for (const request of await listRequests(session, { branch, limit: MAX_REQUESTS })) {
      if (request.suites.passed === 0) continue;
      const passed = (await listBuilds(session, request.id_str)).filter(one => one.build_state === 'passed');
      const suite = flags.get('--suite')?.trim().toLowerCase();
      const found = passed.filter(
        one => one.artifacts !== undefined && (suite === undefined || one.suite.toLowerCase() === suite),
      );
      if (found.length > 0) return found;
    }
    throw refused(`no build of the branch ${plain(branch)} that passed keeps files`);
  }
  const target = await findTarget(session, invocation);
  const among = target.build ? [target.build] : ofSuite(target.builds, flags.get('--suite'));
  const found = among.filter(({ artifacts }) => artifacts !== undefined);
  if (found.length > 0) return found;
  throw refused(
    `${target.build ? `the build ${target.build.id_str}` : `the build request ${target.request.id_str}`} keeps no files: the field "artifacts" of a suite names them`,
  );
}

const artifactDownload = (
  { connection, path: projectPath }: ProjectSession,
  build: SuiteBuild,
  { id_str: id, path, size, sha256 }: Artifact,
  prefix = '',
): Download => ({
  path: `${prefix}${path}`,
  sizeBytes: size,
  sha256,
  open: signal => connection.open('GET', `${projectPath}/builds/${build.id_str}/artifacts/${id}`, { signal }),
});

const listArtifacts = ({ connection, path }: ProjectSession, build: SuiteBuild): Promise<Artifact[]> =>
  take(
    connection.list<Artifact>(`${path}/builds/${build.id_str}/artifacts`, { query: { limit: '1000' } }),
    Number.POSITIVE_INFINITY,
  );

/** The files with these paths, and those below these directories. All, if there are none. */
function select(artifacts: readonly Artifact[], paths: readonly string[], build: SuiteBuild): Artifact[] {
  if (paths.length === 0) return [...artifacts];
  const chosen = new Set<Artifact>();
  for (const given of paths) {
    const directory = given.endsWith('/') ? given : `${given}/`;
    const found = artifacts.filter(({ path }) => path === given || path.startsWith(directory));
    if (found.length === 0)
      throw new CommandError(
        `the build ${build.id_str} has no file ${JSON.stringify(given)}: "assay artifacts list ${build.id_str}" lists them`,
        EXIT.refused,
      );
    for (const one of found) chosen.add(one);
  }
  return [...chosen];
}
