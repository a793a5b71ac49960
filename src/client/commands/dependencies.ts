// `assay dependencies …`: the dependencies of the user. Creates one, uploads its source and follows its compile.

import { createReadStream, readFileSync, type Stats, statSync } from 'node:fs';
import { basename } from 'node:path';
import { Transform } from 'node:stream';
import {
  type Command,
  CommandError,
  type FlagKind,
  type Invocation,
  UsageError,
} from '../../command/command.ts';
import { createProgress, sizeText } from '../../command/progress.ts';
import { COMPILE_CANCELED } from '../../domain/dependency.ts';
import { type Connection, copyBody, ServerError } from '../connection.ts';
import { EXIT, exitStatusOf, refused, unreachable } from '../exit-status.ts';
import { followLog, type LogPrinter, linePrinter, plainPrinter, textOfLine } from '../log-output.ts';
import { ageText, jsonLine, paintState, plain, styleOf, table, write } from '../output.ts';
import type { Dependency } from '../records.ts';
import { HOST_LINES, hostFlags, withConnection } from '../session.ts';

const STANDARD_INPUT = 0;

const OTHER_LINE =
  '"assay dependency" is for administrators of a server: it exports and imports compiled dependencies.';
const NAME_LINE = 'NAME is the name of a dependency, or its ID.';
const NO_WAIT_LINE = '  --no-wait             does not follow the compile';

/** A command that works on the dependencies of the user. */
const dependencyCommand = (
  command: Omit<Command, 'run'> & { run(connection: Connection, invocation: Invocation): Promise<number> },
): Command => ({
  ...command,
  flags: { ...command.flags, ...hostFlags },
  help: [...(command.help as readonly string[]), ...HOST_LINES],
  run: invocation => withConnection(invocation, connection => command.run(connection, invocation)),
});

const list = dependencyCommand({
  name: 'dependencies list',
  summary: 'Lists your dependencies and the state of their compiles.',
  positionals: [],
  flags: { shared: 'flag' },
  help: [OTHER_LINE, '', '  --shared              lists what other accounts share instead'],
  async run(connection, { flags, environment }) {
    const isShared = flags.has('--shared');
    const found = await listDependencies(connection, isShared);
    if (flags.has('--json')) for (const dependency of found) await write(jsonLine(dependency));
    else if (found.length === 0)
      process.stderr.write(
        isShared
          ? 'No other account shares a dependency.\n'
          : 'You have no dependency: "assay dependencies create NAME" creates one.\n',
      );
    else {
      const style = styleOf(environment);
      const rows = found.map(({ name, artifact, outdated, marketplace_state: state }) => [
        plain(name),
        paintState(style, state),
        artifact ? sizeText(artifact.size) : '',
        artifact ? ageText(artifact.created_at) : '',
        outdated ? 'outdated: a related dependency has changed' : '',
      ]);
      await write(`${table(rows).join('\n')}\n`);
    }
    return EXIT.passed;
  },
});

/** Flags, and the fields of the API that they fill in. */
const textFlags: Record<string, string> = {
  prefix: 'prefix',
  command: 'command',
  source: 'source',
  'launch-command': 'launch_command',
  'launch-timeout': 'launch_timeout',
  description: 'description',
  image: 'image',
};
const fileFlags: Record<string, string> = {
  'command-file': 'command',
  'launch-command-file': 'launch_command',
  'environment-file': 'environment',
};
const ofKind = (names: Record<string, string>, kind: FlagKind): Record<string, FlagKind> =>
  Object.fromEntries(Object.keys(names).map(name => [name, kind]));

const create = dependencyCommand({
  name: 'dependencies create',
  summary: 'Creates a dependency, which then waits for the archive of its source.',
  positionals: ['NAME'],
  flags: {
    ...ofKind(textFlags, 'value'),
    ...ofKind(fileFlags, 'path'),
    related: 'value',
    'no-library-path': 'flag',
    recompile: 'flag',
  },
  help: [
    "  assay dependencies create zlib --command './configure --prefix=/srv/zlib && make install' --prefix /srv/zlib",
    '',
    'The command installs below the prefix and must name it. A FILE of - is the standard input.',
    '',
    '  --command COMMAND     compiles the source, run with sh -c; or --command-file',
    '  --command-file FILE   a file with the command',
    '  --prefix DIRECTORY    where the command installs [/srv/dependency]',
    '  --source DIRECTORY    the directory in the archive where the command runs [the top]',
    '  --launch-command COMMAND',
    '                        starts its daemon before a suite; or --launch-command-file',
    '  --launch-command-file FILE',
    '                        a file with that command',
    '  --launch-timeout SECONDS',
    '                        how long the launch command may take [60]',
    '  --environment-file FILE',
    '                        lines of NAME=value: variables for suites that use it',
    '  --related NAMES       other dependencies that it needs, separated by commas',
    '  --no-library-path     keeps its libraries off LD_LIBRARY_PATH',
    '  --recompile           compiles it again when a related dependency has changed',
    '  --image NAME          compiles it in this image',
    '  --description TEXT    any text',
  ],
  async run(connection, invocation) {
    const { flags, positionals } = invocation;
    const [name = ''] = positionals;
    const fields = readFields(flags);
    const related = (flags.get('--related') ?? '').split(',').filter(one => one.trim() !== '');
    const known = related.length === 0 ? [] : await listVisible(connection);
    const created = await connection.call<{ id_ref: string; name: string }>('POST', '/dependencies', {
      fields: {
        name,
        ...fields,
        ...(related.length > 0 && {
          'related_dependencies[]': related.map(one => pick(connection, known, one).id_str),
        }),
      },
    });
    if (flags.has('--json')) await write(jsonLine(created));
    else {
      await write(`${plain(created.name)} was created.\n`);
      process.stderr.write(`"assay dependencies upload NAME ARCHIVE" uploads its source and compiles it.\n`);
    }
    return EXIT.passed;
  },
});

/** The fields that flags and files fill in. */
function readFields(flags: Invocation['flags']): Record<string, string> {
  const fields: Record<string, string> = {};
  const set = (field: string, value: string, flag: string) => {
    if (fields[field] !== undefined)
      throw new UsageError(`${flag} gives the ${field.replaceAll('_', ' ')} a second time`);
    fields[field] = value;
  };
  let readsInput = false;
  for (const [flag, field] of Object.entries(textFlags)) {
    const value = flags.get(`--${flag}`);
    if (value !== undefined) set(field, value, `--${flag}`);
  }
  for (const [flag, field] of Object.entries(fileFlags)) {
    const path = flags.get(`--${flag}`);
    if (path === undefined) continue;
    if (path === '-' && readsInput)
      throw new UsageError('only one file can be the standard input: write the others to files');
    readsInput ||= path === '-';
    set(field, readText(path, `--${flag}`), `--${flag}`);
  }
  if (fields.command === undefined)
    throw new UsageError('assay dependencies create needs --command or --command-file');
  if (flags.has('--no-library-path')) fields.library_path = 'false';
  if (flags.has('--recompile')) fields.recompile = 'true';
  return fields;
}

function readText(path: string, flag: string): string {
  try {
    return readFileSync(path === '-' ? STANDARD_INPUT : path, 'utf8');
  } catch (error) {
    throw new UsageError(`${flag}: ${(error as Error).message}`);
  }
}

const upload = dependencyCommand({
  name: 'dependencies upload',
  summary: 'Uploads the source of a dependency, and follows its compile.',
  positionals: ['NAME', 'ARCHIVE'],
  flags: { 'no-wait': 'flag' },
  help: [
    'ARCHIVE is a tar (plain, gzip, bzip2, xz or zstd) or a zip, of any size. Exits with the result of the compile.',
    NAME_LINE,
    '',
    NO_WAIT_LINE,
  ],
  async run(connection, invocation) {
    const [name = '', archive = ''] = invocation.positionals;
    const { size: sizeBytes } = statArchive(archive);
    const dependency = await findDependency(connection, name);
    await send(connection, dependency, archive, sizeBytes);
    return finish(connection, invocation, dependency);
  },
});

function statArchive(path: string): Stats {
  let found: Stats;
  try {
    found = statSync(path);
  } catch (error) {
    throw new UsageError(`the archive cannot be read: ${(error as Error).message}`);
  }
  if (!found.isFile()) throw new UsageError(`${path} is not a file: give a tar or a zip`);
  if (found.size === 0) throw new UsageError(`${path} is empty: give a tar or a zip`);
  return found;
}

/** Streams the archive to the server. */
async function send(
  connection: Connection,
  { id_str: id }: Dependency,
  archive: string,
  sizeBytes: number,
): Promise<void> {
  const progress = createProgress(`uploading ${plain(basename(archive))}`);
  let sentBytes = 0;
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      sentBytes += chunk.length;
      progress.update(sentBytes, sizeBytes);
      done(undefined, chunk);
    },
    flush(done) {
      done(
        sentBytes < sizeBytes
          ? new UsageError('the archive became shorter while it was sent: run it again')
          : null,
      );
    },
  });
  const file = createReadStream(archive, { end: sizeBytes - 1, highWaterMark: 1 << 18 });
  file.on('error', error => counted.destroy(new UsageError(`the archive cannot be read: ${error.message}`)));
  progress.update(0, sizeBytes);
  try {
    await connection.call('POST', `/dependencies/${id}/archive`, {
      body: { content: file.pipe(counted), sizeBytes, type: 'application/octet-stream' },
    });
  } catch (error) {
    if (sentBytes === 0 || !(error instanceof CommandError) || error instanceof ServerError) throw error;
    throw unreachable(`the upload was interrupted, and nothing was kept: run it again (${error.message})`);
  } finally {
    file.destroy();
    progress.end();
  }
}

const log = dependencyCommand({
  name: 'dependencies log',
  summary: 'Prints the log of the last compile, or follows it.',
  positionals: ['NAME'],
  flags: { follow: 'flag' },
  letters: { f: 'follow' },
  help: [NAME_LINE, '', '  -f, --follow          follows the compile until it ends; exits with its result'],
  async run(connection, invocation) {
    const { flags, positionals } = invocation;
    const dependency = await findDependency(connection, positionals[0] ?? '');
    const printer = printerFor(flags.has('--json'));
    if (flags.has('--follow')) return follow(connection, invocation, dependency, printer);
    const response = await connection.open('GET', `/dependencies/${dependency.id_str}/log`);
    let offset = 0;
    await copyBody(response, async chunk => {
      await printer.print(chunk, offset);
      offset += chunk.length;
    });
    await printer.end();
    return EXIT.passed;
  },
});

const compile = dependencyCommand({
  name: 'dependencies compile',
  summary: 'Compiles a dependency again, and follows the compile.',
  positionals: ['NAME'],
  flags: { force: 'flag', 'no-wait': 'flag' },
  help: [
    'Exits with the result of the compile.',
    NAME_LINE,
    '',
    '  --force               compiles it even if an earlier compile with the same archive and instructions can be used',
    NO_WAIT_LINE,
  ],
  async run(connection, invocation) {
    const { flags, positionals } = invocation;
    const dependency = await findDependency(connection, positionals[0] ?? '');
    await connection.call('POST', `/dependencies/${dependency.id_str}/compile`, {
      fields: { force: String(flags.has('--force')) },
    });
    return finish(connection, invocation, dependency);
  },
});

/** Follows the compile that was queued, unless --no-wait is given. With --json, prints the record instead of the log. */
async function finish(
  connection: Connection,
  invocation: Invocation,
  dependency: Dependency,
): Promise<number> {
  const isJson = invocation.flags.has('--json');
  if (!invocation.flags.has('--no-wait'))
    return follow(connection, invocation, dependency, isJson ? undefined : plainPrinter);
  if (isJson)
    await write(jsonLine(await connection.call<Dependency>('GET', `/dependencies/${dependency.id_str}`)));
  else await write(`The compile of ${plain(dependency.name)} is queued.\n`);
  return EXIT.passed;
}

/** Follows the compile to its end. Without a printer, prints the record at the end. */
async function follow(
  connection: Connection,
  { environment }: Invocation,
  dependency: Dependency,
  printer: LogPrinter | undefined,
): Promise<number> {
  const style = styleOf(environment, process.stderr);
  const remark = (text: string) => process.stderr.write(`assay: ${text}\n`);
  const interrupt = () => {
    remark(`the compile goes on; "assay dependencies log ${dependency.id_str} -f" follows it`);
    process.exit(EXIT.interrupted);
  };
  process.once('SIGINT', interrupt);
  try {
    const path = `/dependencies/${dependency.id_str}/firehose`;
    const record = await followLog<Dependency>(
      connection,
      path,
      printer,
      ({ marketplace_state: state, waiting }) => {
        if (state === 'waiting_archive_upload') remark('it waits for the archive of its source');
        else if (state === 'enqueued_for_compile')
          remark(`the compile is queued${waiting ? `: ${plain(waiting.reason)}` : ''}`);
      },
    );
    if (!printer) await write(jsonLine(record));
    process.stderr.write(`${resultLine(style, record)}\n`);
    return compileStatus(record);
  } finally {
    process.off('SIGINT', interrupt);
  }
}

function resultLine(style: ReturnType<typeof styleOf>, record: Dependency): string {
  const { name, artifact, error, marketplace_state: state } = record;
  const more = error !== undefined ? `. ${plain(error)}` : artifact ? `, ${sizeText(artifact.size)}` : '';
  return `${plain(name)}: ${paintState(style, state)}${more}`;
}

const compileStatus = ({ marketplace_state: state, error }: Dependency): number =>
  error === COMPILE_CANCELED ? EXIT.canceled : exitStatusOf(state);

/** As the log is, or a record for each line. */
const printerFor = (isJson: boolean): LogPrinter =>
  isJson ? linePrinter((line, offset) => jsonLine({ offset, text: textOfLine(line) })) : plainPrinter;

async function listDependencies(connection: Connection, isShared: boolean): Promise<Dependency[]> {
  const found: Dependency[] = [];
  const query = { limit: '100', ...(isShared && { shared: 'true' }) };
  for await (const dependency of connection.list<Dependency>('/dependencies', { query }))
    found.push(dependency);
  return found;
}

/** Those of the user, and those that others share. */
const listVisible = async (connection: Connection): Promise<Dependency[]> => [
  ...(await listDependencies(connection, false)),
  ...(await listDependencies(connection, true)),
];

const findDependency = async (connection: Connection, given: string): Promise<Dependency> =>
  pick(connection, await listDependencies(connection, false), given);

/** By its ID or its name. */
function pick({ url }: Connection, known: readonly Dependency[], given: string): Dependency {
  const key = given.trim().toLowerCase();
  const found =
    known.find(({ id_str: id }) => id === key) ?? known.find(({ name }) => name.toLowerCase() === key);
  if (!found)
    throw refused(
      `you have no dependency ${JSON.stringify(given)} on ${url}: "assay dependencies list" shows yours`,
    );
  return found;
}

export const dependencies: readonly Command[] = [list, create, upload, log, compile];
