// `assay help`: prints a topic of the manual or the help of a command.

import { type Command, printLines, UsageError } from '../command/command.ts';
import { type CommandLine, explain, overview } from '../command/run-command.ts';
import { titleOfTopic, topicNames } from '../web/manual/topics.ts';

const DEFAULT_COLUMNS = 80;
const MIN_COLUMNS = 30;

/** The command line comes from a function, because it contains this command. */
export function helpCommand(line: () => CommandLine): Command {
  return {
    name: 'help',
    summary: 'Prints a topic of the manual, or the help of a command; without either, lists both.',
    positionals: ['[TOPIC...]'],
    flags: {},
    words: () => topicNames,
    help: () => ['The same manual is at /ui/manual of the server. The topics:', '', topicList()],
    async run({ positionals, environment }) {
      const name = positionals.join(' ');
      if (name === '')
        return printLines(
          `${overview(line())}\n\nTopics of the manual, each printed by "assay help TOPIC":\n\n${topicList()}`,
        );
      const explained = explain(line(), positionals);
      if (!topicNames.includes(name)) {
        if (explained !== undefined) return printLines(explained);
        throw new UsageError(
          `there is no topic ${JSON.stringify(name)}, and no command of that name; the topics are:\n\n${topicList()}`,
        );
      }
      const isTerminal = process.stdout.isTTY === true;
      const columns = process.stdout.columns || Number(environment.COLUMNS) || DEFAULT_COLUMNS;
      // Loaded now, because the parser of Markdown would delay every other command.
      const { printTopic } = await import('./manual-text.ts');
      const text = printTopic(name, {
        columns: Math.max(MIN_COLUMNS, columns),
        isBold: isTerminal && !environment.NO_COLOR && environment.TERM !== 'dumb',
      });
      process.stdout.write(
        explained === undefined ? text : `${text}\n  "assay ${name} --help" explains the command.\n`,
      );
      return 0;
    },
  };
}

export function topicList(): string {
  const width = Math.max(...topicNames.map(name => name.length));
  return topicNames.map(name => `  ${name.padEnd(width)}  ${titleOfTopic(name)}`).join('\n');
}
