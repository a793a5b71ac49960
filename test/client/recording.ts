// Records the session that the topic "client" of the manual shows, with a real server and the client in a pseudo-terminal. Run
// by itself, it replaces the text in the manual.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../../build/bundle.ts';
import { createTerminalScreen } from '../support/terminal-screen.ts';
import { startClientWorld } from './fixture.ts';

const COLUMNS = 100;
/** Lines that are longer than the terminal stay whole in the manual. */
const UNWRAPPED = 10_000;
/** The address in the manual. */
const SHOWN_URL = 'https://ci.example.org';
const manualPath = join(root, 'src/web/manual/client.md');
const BLOCK = /^```text session\n(.*?)^```$/ms;

export const sessionInManual = (): string => {
  const [, session] = BLOCK.exec(readFileSync(manualPath, 'utf8')) ?? [];
  return session ?? assert.fail('the manual has no recorded session');
};

const files = {
  'price.sh': 'echo $((($1 * 119) / 100))\n',
  'test.sh': `status=0
check() {
  if [ "$(sh price.sh "$1")" = "$2" ]; then
    echo "ok: $1 costs $2 with tax"
    cases="$cases<testcase classname='price' name='$1 with tax'/>"
  else
    echo "not ok: $1 costs $(sh price.sh "$1") with tax, not $2"
    cases="$cases<testcase classname='price' name='$1 with tax'><failure message='not $2'/></testcase>"
    status=1
  fi
}
check 100 119
check 5 6
echo "<testsuite>$cases</testsuite>" >results.xml
mkdir -p dist && cp price.sh dist/price
exit $status
`,
};

/** Types the commands of the session. Returns the text that the terminal shows. */
export async function recordSession(): Promise<string> {
  const world = await startClientWorld();
  try {
    const { project, path } = await world.checkout(
      world.repository({ message: 'Start a shop\n', files: { 'README.md': 'A shop.\n' } }),
      { name: 'Shop' },
    );
    await project.suite({
      name: 'Prices',
      command: 'sh test.sh',
      reports: 'results.xml',
      artifacts: 'dist/*',
    });
    const home = join(world.directory, 'home');
    mkdirSync(home);
    const env = {
      XDG_CONFIG_HOME: home,
      ASSAY_URL: '',
      ASSAY_TOKEN: '',
      ASSAY_CA_FILE: '',
      LANG: 'C.UTF-8',
      NO_COLOR: '1',
    };
    const screen: string[] = [];
    const shown = (text: string) => text.replaceAll(world.client.origin, SHOWN_URL);
    /** Runs the client, and answers its questions. */
    const type = async (
      command: string,
      expected: number,
      answers: [question: string, answer: string][] = [],
    ) => {
      const words = command.replace(SHOWN_URL, world.client.origin).split(' ').slice(1);
      const running = await world.start(words, { in: path, env, columns: COLUMNS });
      for (const [question, answer] of answers) {
        await running.until(question);
        running.type(`${answer}\r`);
      }
      const { status, stdout } = await running.ended;
      assert.equal(status, expected, `${command}: ${stdout}`);
      const terminal = createTerminalScreen(UNWRAPPED, UNWRAPPED);
      terminal.write(stdout);
      const lines = terminal.all();
      while (lines.at(-1) === '') lines.pop();
      screen.push(`$ ${command}`, ...lines.map(shown));
    };
    /** Runs a command of the shell. */
    const shell = (command: string) => {
      const printed = execFileSync('sh', ['-c', command], { cwd: path, encoding: 'utf8' });
      screen.push(`$ ${command}`, ...printed.split('\n').slice(0, -1));
    };
    const [email = '', key = ''] = world.token.split(':');
    await type(`assay login ${SHOWN_URL} --with-key`, 0, [
      ['[y/N]', 'y'],
      ['Email: ', email],
      ['API key', key],
    ]);
    for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text);
    shell('git status --short');
    await type('assay run --local', 1);
    await type('assay tests --local', 0);
    shell("sed -i 's/119/119 + 50/' price.sh");
    await type('assay run --local', 0);
    await type('assay artifacts get --local --output out', 0);
    shell('cat out/dist/price');
    return `${screen.join('\n')}\n`;
  } finally {
    await world.close();
  }
}

/** Without what differs from session to session: IDs, hashes, fingerprints, times, sizes and what only a slow machine prints. */
export const normalize = (session: string): string =>
  session
    .replaceAll(/^\[assay\] collecting artifacts\n/gm, '')
    .replaceAll(/\b[0-9A-F]{2}(:[0-9A-F]{2}){31}\b/g, 'FINGERPRINT')
    .replaceAll(/\b\d{12,20}\b/g, 'ID')
    .replaceAll(/\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b/g, 'HASH')
    .replaceAll(/\b\d+ min \d+ s\b|\b[\d.]+ m?s\b/g, 'TIME')
    .replaceAll(/\b\d\d:\d\d(:\d\d)?\b/g, 'CLOCK')
    .replaceAll(/\b[\d.]+ ([KMG]i)?B\b/g, 'SIZE')
    .replaceAll(/ {2,}/g, '  ')
    .replaceAll(/ +$/gm, '');

if (import.meta.main) {
  const session = await recordSession();
  const text = readFileSync(manualPath, 'utf8');
  writeFileSync(
    manualPath,
    text.replace(BLOCK, () => `\`\`\`text session\n${session}\`\`\``),
  );
  process.stdout.write(session);
}
