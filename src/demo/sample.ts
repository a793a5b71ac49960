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
cp style/* public
for page in pages/*.md; do
  name=$(basename "$page" .md)
  {
    echo '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="style.css">'
    echo "<title>$name</title><img src=\\"logo.svg\\" alt=\\"\\">"
    sed 's/^# \\(.*\\)/<h1>\\1<\\/h1>/; s/\\[\\([^]]*\\)\\](\\([a-z]*\\).md)/<a href="\\2.html">\\1<\\/a>/g' "$page"
    ${footer}
  } >"public/$name.html"
  echo "public/$name.html: $(wc -c <"public/$name.html") bytes"
done
`;

const TEST_SCRIPT = `#!/bin/sh
# Checks every link between pages, and that the preview answers. Writes the results to reports/tests.xml.
mkdir -p reports
report=reports/tests.xml
echo '<testsuite name="website">' >"$report"
escape() { sed 's/&/\\&amp;/g; s/</\\&lt;/g; s/"/\\&quot;/g'; }

# run_test CLASS NAME COMMAND...
run_test() {
  class=$1 name=$2
  shift 2
  began=$(date +%s%N)
  output=$("$@" 2>&1)
  status=$?
  printf '%s\\n' "$output"
  ms=$((($(date +%s%N) - began) / 1000000))
  echo "<testcase classname=\\"$class\\" name=\\"$name\\" time=\\"\${ms}e-3\\">" >>"$report"
  if [ "$status" -ne 0 ]; then
    message=$(printf '%s\\n' "$output" | grep -m 1 '^not ok' | escape)
    echo "<failure message=\\"$message\\">$(printf '%s\\n' "$output" | escape)</failure>" >>"$report"
  fi
  echo '</testcase>' >>"$report"
  return "$status"
}

# The preview is slow the first time. Nobody has found out why, so the test is repeated once.
answer() {
  [ -e /srv/cache/preview ] && echo 'ok - the preview answers' && return
  touch /srv/cache/preview
  echo 'not ok - the preview did not answer within 100 ms'
  return 1
}

failed=0
for page in pages/*.md; do
  run_test links "$page" linkcheck "$page" || failed=1
done
run_test preview 'answers in time' answer || run_test preview 'answers in time' answer || failed=1
echo '</testsuite>' >>"$report"
exit "$failed"
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
      'style/style.css':
        'body { margin: 3rem auto; max-width: 40rem; font: 1.1rem/1.6 sans-serif; color: #24303d; }\nimg { width: 4rem; }\n',
      'style/logo.svg':
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><circle cx="32" cy="32" r="30" fill="#2f6feb"/><path d="M20 44 32 16l12 28" fill="none" stroke="#fff" stroke-width="6"/></svg>\n',
      'tests/run.sh': TEST_SCRIPT,
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
  /** Globs of the files to keep, and of test reports. */
  artifacts?: string;
  reports?: string;
};

export const suites: SampleSuite[] = [
  {
    name: 'Unit tests',
    description:
      'Checks every link between pages. Uses the compiled linkcheck. One test is flaky, and one fails on the branch redesign.',
    command: 'sh tests/run.sh',
    usesTool: true,
    reports: 'reports/*.xml',
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
    description:
      'Builds the pages, which are kept as artifacts. Runs on main. Its secret variable does not appear in the log.',
    artifacts: 'public/**',
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

export type SampleRequest = { ref: string; expected: Record<string, string> };

/** The build requests, and the expected result of each suite. The branch is compared with main, which is built before. */
export const requests: SampleRequest[][] = [
  [
    { ref: 'main', expected: { 'Unit tests': 'passed', Lint: 'passed', Site: 'passed', Docs: NOT_RUN } },
    { ref: 'v1.0', expected: { 'Unit tests': 'passed', Lint: NOT_RUN, Site: 'passed', Docs: 'passed' } },
  ],
  [{ ref: 'redesign', expected: { 'Unit tests': 'failed', Lint: NOT_RUN, Site: NOT_RUN, Docs: NOT_RUN } }],
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
