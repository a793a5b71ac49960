// `assay search`: finds text in the logs of builds, of one project or of all.

import { type Command, UsageError } from '../../command/command.ts';
import { buildMachine } from '../../domain/build.ts';
import { findProject } from '../checkout.ts';
import type { Connection } from '../connection.ts';
import { EXIT } from '../exit-status.ts';
import { ageText, jsonLine, paintState, plain, type Style, styleOf, write } from '../output.ts';
import type { FoundLine, Project } from '../records.ts';
import { PROJECT_LINES, projectFlags, readLimit, withConnection } from '../session.ts';

const DEFAULT_LIMIT = 50;
const STATES = Object.keys(buildMachine);

export const search: Command = {
  name: 'search',
  summary: 'Finds text in the logs of builds.',
  positionals: ['TEXT'],
  flags: {
    ...projectFlags,
    branch: 'value',
    state: 'value',
    since: 'value',
    case: 'flag',
    limit: 'value',
  },
  help: [
    '  assay search "connection refused"',
    '  assay search ENOSPC --project Website --state failed --since 2026-01-31',
    '',
    'Searches all your projects, newest build first, and prints up to 5 lines of each build.',
    '',
    '  --branch NAME         only builds of this branch',
    `  --state STATE         only builds that are ${STATES.join(', ')}`,
    '  --since DATE          only builds since this date or time',
    '  --case                upper and lower case differ',
    `  --limit N             at most this many lines [${DEFAULT_LIMIT}]`,
    ...PROJECT_LINES.map(line => line.replace(/\[.*this checkout.*\]/, '[all of them]')),
  ],
  run: invocation =>
    withConnection(invocation, async connection => {
      const { flags, environment, positionals } = invocation;
      const state = flags.get('--state')?.replaceAll(' ', '_');
      if (state !== undefined && !STATES.includes(state))
        throw new UsageError(`--state must be one of ${STATES.join(', ')}`);
      const query = {
        q: positionals[0],
        branch: flags.get('--branch'),
        state,
        since: flags.get('--since'),
        ...(flags.has('--case') && { case: 'true' }),
      };
      const style = styleOf(environment);
      let rest = readLimit(flags, DEFAULT_LIMIT);
      let shownBuild = '';
      for await (const project of projectsOf(connection, flags.get('--project'))) {
        const path = `/projects/${project.id_str}/search`;
        const lines = connection.list<FoundLine>(path, { query: { ...query, limit: String(rest) } });
        for await (const line of lines) {
          const url = `${connection.url}/ui/projects/${project.id_str}/builds/${line.build_id_str}#L${line.line}`;
          if (flags.has('--json')) await write(jsonLine({ ...line, project: project.name, url }));
          else {
            if (style.isTerminal && line.build_id_str !== shownBuild)
              await write(headText(style, project, line));
            await write(lineText(style, line, url));
          }
          shownBuild = line.build_id_str;
          rest -= 1;
          if (rest === 0) break;
        }
        if (rest === 0) break;
      }
      if (shownBuild === '') process.stderr.write('Nothing found.\n');
      return EXIT.passed;
    }),
};

async function* projectsOf(connection: Connection, given: string | undefined): AsyncGenerator<Project, void> {
  if (given !== undefined) yield await findProject(connection, given);
  else yield* connection.list<Project>('/projects', { query: { limit: '100' } });
}

function headText(style: Style, project: Project, line: FoundLine): string {
  const names = [project.name, line.suite, line.branch].filter(name => name !== '').map(plain);
  return `${style.paint('bold', names.join('  '))}  ${paintState(style, line.build_state)}  ${ageText(line.created_at)}  ${style.paint('dim', `build ${line.build_id_str}`)}\n`;
}

/** On a terminal below the heading of its build; otherwise like the output of grep. */
const lineText = (style: Style, line: FoundLine, url: string): string =>
  style.isTerminal
    ? `${style.paint('green', String(line.line).padStart(7))}  ${plain(line.text)}\n         ${style.paint('dim', url)}\n`
    : `${url}: ${plain(line.text)}\n`;
