// What the commands of the client share: the flags, and the connection and project of an invocation.

import { type Command, type FlagKind, type Invocation, UsageError } from '../command/command.ts';
import { findProject } from './checkout.ts';
import { type Connection, openConnection } from './connection.ts';
import { chooseHost } from './hosts.ts';
import type { Project } from './records.ts';

export const hostFlags: Record<string, FlagKind> = { host: 'value', json: 'flag' };
export const projectFlags: Record<string, FlagKind> = { project: 'value', ...hostFlags };

export const HOST_LINES = [
  '  --host URL            the server [the one that you signed in to last]',
  '  --json                prints JSON, one record on a line',
];
export const PROJECT_LINES = [
  "  --project NAME        the project [the one of this checkout's remote]",
  ...HOST_LINES,
];

/** Connects to the server of the invocation, and disconnects at the end. */
export async function withConnection<T>(
  invocation: Invocation,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const connection = openConnection(chooseHost(invocation));
  try {
    return await work(connection);
  } finally {
    connection.close();
  }
}

export type ProjectSession = {
  connection: Connection;
  project: Project;
  /** The path of the project in the API. */
  path: string;
  /** Where the pages of the project are. */
  pageUrl: string;
};

export const withProject = <T>(
  invocation: Invocation,
  work: (session: ProjectSession) => Promise<T>,
): Promise<T> =>
  withConnection(invocation, async connection => {
    const project = await findProject(connection, invocation.flags.get('--project'));
    return work({
      connection,
      project,
      path: `/projects/${project.id_str}`,
      pageUrl: `${connection.url}/ui/projects/${project.id_str}`,
    });
  });

/** A command that works on a project. */
export const projectCommand = (
  command: Omit<Command, 'run'> & {
    run(session: ProjectSession, invocation: Invocation): Promise<number>;
  },
): Command => ({
  ...command,
  flags: { ...command.flags, ...projectFlags },
  help: [...(command.help as readonly string[]), ...PROJECT_LINES],
  run: invocation => withProject(invocation, session => command.run(session, invocation)),
});

const MAX_LIMIT = 1000;

/** The value of --limit. */
export function readLimit(flags: ReadonlyMap<string, string>, defaultValue: number): number {
  const given = flags.get('--limit') ?? String(defaultValue);
  if (!/^[1-9]\d{0,3}$/.test(given) || Number(given) > MAX_LIMIT)
    throw new UsageError(`--limit must be a number from 1 to ${MAX_LIMIT}`);
  return Number(given);
}

/** The records of a list, at most `max`. */
export async function take<T>(records: AsyncIterable<T>, max: number): Promise<T[]> {
  const taken: T[] = [];
  if (max <= 0) return taken;
  for await (const record of records) {
    taken.push(record);
    if (taken.length >= max) break;
  }
  return taken;
}
