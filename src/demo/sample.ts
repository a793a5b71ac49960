// The content of the demo: a small website with its history, the suites that test it, a C tool that one of them needs,
// and the expected result of each.
import { buffer } from 'node:stream/consumers';
import { createGzip } from 'node:zlib';
import { pack } from 'tar-stream';
import { asset } from '../asset.ts';
import type { DescribedCommit } from './repository.ts';

/** The name of the Git host in repository addresses. DATA/ssh/config says where it is. */
export const GIT_HOST = 'demo.assay';
export const WEBSITE = 'website.git';
export const LIVE = 'live.git';
export const addressOf = (repository: string) => `git@${GIT_HOST}:${repository}`;

const ADA = 'Ada Brandt <ada@example.org>';
const IVO = 'Ivo Lindqvist <ivo@example.org>';
const DAY = 86_400;
const BEGUN_AT = Date.UTC(2026, 0, 5, 9) / 1000;

const buildScript = (footer: string) => `#!/bin/sh
# Makes public/ from pages/.
set -eu
mkdir -p public
for page in pages/*.md; do
  name=$(basename "$page" .md)
  { echo "<title>$name</title>"; sed 's/^# \\(.*\\)/<h1>\\1<\\/h1>/' "$page"; ${footer}; } >"public/$name.html"
  echo "public/$name.html: $(wc -c <"public/$name.html") bytes"
done
`;

export const history: DescribedCommit[] = [
  {
    branch: 'main',
    author: ADA,
    at: BEGUN_AT,
    message: 'Begin the website\n',
    files: {
      'README.md': '# Website\n\nPages are in pages/, `scripts/build.sh` makes public/ from them.\n',
      'pages/index.md': '# Welcome\n\nRead [who we are](about.md), or [write to us](contact.md).\n',
      'pages/about.md': '# About\n\nBack to the [front page](index.md).\n',
      'pages/contact.md': '# Contact\n\nSee [about](about.md), or https://example.org.\n',
      'scripts/build.sh': buildScript('echo "<hr>"'),
      'tests/run.sh': '#!/bin/sh\n# Checks every link between pages.\nexec linkcheck pages/*.md\n',
    },
  },
  {
    branch: 'main',
    tag: 'v1.0',
    author: IVO,
    at: BEGUN_AT + DAY,
    message: 'Explain how pages are written\n',
    files: { 'docs/writing.md': '# Writing pages\n\nA page begins with its title.\n' },
  },
  {
    branch: 'main',
    author: ADA,
    at: BEGUN_AT + 3 * DAY,
    message: 'Show in each page which commit it was made from\n',
    files: { 'scripts/build.sh': buildScript('echo "<hr>Made from $ASSAY_COMMIT."') },
  },
  {
    branch: 'redesign',
    from: 'main',
    author: IVO,
    at: BEGUN_AT + 4 * DAY,
    message: 'Start with the news\n',
    files: { 'pages/index.md': '# Welcome\n\nRead [the news](news.md), or [who we are](about.md).\n' },
  },
];

export type SampleSuite = {
  name: string;
  description: string;
  command: string;
  rule?: { subject: string; operator: string; value: string };
  variable?: { name: string; content: string };
  usesTool?: true;
};

export const suites: SampleSuite[] = [
  {
    name: 'Unit tests',
    description: 'Checks every link between pages. Uses the compiled linkcheck.',
    command: 'sh tests/run.sh',
    usesTool: true,
  },
  {
    name: 'Lint',
    description: 'Checks the syntax of shell scripts. Runs for commits that change one.',
    command:
      'for script in scripts/*.sh tests/*.sh; do sh -n "$script" && echo "$script is valid" || exit 1; done',
    rule: { subject: 'commit.files', operator: 'matches', value: '*.sh' },
  },
  {
    name: 'Site',
    description: 'Builds the pages. Runs on main. Its secret variable does not appear in the log.',
    command: 'sh scripts/build.sh && echo "would be uploaded with $UPLOAD_TOKEN"',
    rule: { subject: 'commit.branches', operator: 'contains', value: 'main' },
    variable: { name: 'UPLOAD_TOKEN', content: 'not-for-the-log-4711' },
  },
  {
    name: 'Docs',
    description: 'Checks that documents begin with a title. Runs for commits that change one.',
    command: 'for page in docs/*.md; do head -n 1 "$page" | grep "^# " || exit 1; done',
    rule: { subject: 'commit.files', operator: 'starts_with', value: 'docs/' },
  },
];

export const NOT_RUN = 'not run';

/** The build requests, and the expected result of each suite. */
export const requests: { ref: string; expected: Record<string, string> }[] = [
  { ref: 'main', expected: { 'Unit tests': 'passed', Lint: 'passed', Site: 'passed', Docs: NOT_RUN } },
  { ref: 'v1.0', expected: { 'Unit tests': 'passed', Lint: NOT_RUN, Site: 'passed', Docs: 'passed' } },
  { ref: 'redesign', expected: { 'Unit tests': 'failed', Lint: NOT_RUN, Site: NOT_RUN, Docs: NOT_RUN } },
];

/** Pushed at the end: repairs the link that the redesign has broken. */
export const pushed: { commit: DescribedCommit; expected: Record<string, string> } = {
  commit: {
    branch: 'redesign',
    from: 'redesign^0',
    author: IVO,
    at: BEGUN_AT + 5 * DAY,
    message: 'Add the news\n',
    files: { 'pages/news.md': '# News\n\nBack to the [front page](index.md).\n' },
  },
  expected: { 'Unit tests': 'passed' },
};

const TOOL_SOURCE = 'linkcheck-1.0';
export const tool = {
  name: 'linkcheck',
  description: 'Finds broken links between Markdown pages.',
  command: 'make install PREFIX=/srv/linkcheck',
  prefix: '/srv/linkcheck',
  source: TOOL_SOURCE,
};

/** A source archive of the tool. */
export async function toolArchive(): Promise<Buffer> {
  const archive = pack();
  const mtime = new Date(BEGUN_AT * 1000);
  for (const name of ['Makefile', 'links.h', 'links.c', 'main.c'])
    archive.entry({ name: `${TOOL_SOURCE}/${name}`, mtime }, asset(`demo/linkcheck/${name}`));
  archive.finalize();
  return buffer(archive.pipe(createGzip()));
}
