// The topics of the manual, which are the Markdown files of this folder. manual.ts parses them.

import { asset } from '../../asset.ts';

/** The topics in the order they are listed. Each is the Markdown file of that name. */
export const topicGroups: readonly { title: string; names: readonly string[] }[] = [
  { title: 'Start', names: ['concepts', 'install', 'first-project', 'client', 'account'] },
  {
    title: 'Builds',
    names: [
      'suites',
      'repositories',
      'triggers',
      'schedules',
      'local-runs',
      'dependencies',
      'cookbook',
      'postgresql',
      'images',
      'caches',
      'artifacts',
      'tests',
      'changes',
      'search',
      'activity',
    ],
  },
  { title: 'Integrate', names: ['api', 'webhooks', 'statuses', 'firehose', 'oauth'] },
  {
    title: 'Operate',
    names: ['settings', 'reverse-proxy', 'backup', 'security', 'swarm', 'growth', 'troubleshooting'],
  },
];

export const topicNames: readonly string[] = topicGroups.flatMap(({ names }) => names);

export const readTopic = (name: string) => asset(`web/manual/${name}.md`).toString('utf8');

/** The first line, which is a heading. */
export const titleOfTopic = (name: string) => /^# (.+)/.exec(readTopic(name))?.[1] ?? name;
