// The end of the demo's output: a table of what ran, and how to sign in.
import { NOT_RUN } from './sample.ts';
import type { SummaryRow } from './scenario.ts';
import { cut, type Screen, seconds } from './screen.ts';

export function printSummary(screen: Screen, ran: readonly SummaryRow[], tookMs: number): void {
  const { paint, print, tick } = screen;
  const whatWidth = Math.max(...ran.map(({ what }) => what.length));
  print();
  print(paint('bold', `  ${'What ran'.padEnd(whatWidth)}  ${'Time'.padStart(7)}  Result`));
  for (const { what, result, isGood, ms, note } of ran) {
    const mark = isGood && result === NOT_RUN ? paint('dim', '-') : tick(isGood);
    const head = `${what.padEnd(whatWidth)}  ${(ms === undefined ? '' : seconds(ms)).padStart(7)}  ${result}`;
    const rest = note ? paint('dim', cut(`: ${note}`, screen.width() - head.length - 2)) : '';
    print(`${mark} ${head}${rest}`);
  }
  const wrong = ran.filter(({ isGood }) => !isGood).length;
  print();
  print(
    wrong === 0
      ? paint('good', `Everything worked as expected, in ${seconds(tookMs)}.`)
      : paint('bad', `${wrong} of ${ran.length} did not work as expected.`),
  );
}

export function printSignIn(
  screen: Screen,
  access: {
    url: string;
    /** What is worth seeing, with its address. */
    pages: Record<string, string>;
    email: string;
    password: string;
    apiKey: string;
    caPath: string;
    /** The directory of the repository. */
    website: string;
  },
): void {
  const { paint, print } = screen;
  const { url, pages, email, password, apiKey, caPath, website } = access;
  const row = (name: string, value: string) => print(`  ${name.padEnd(12)} ${paint('bold', value)}`);
  print();
  print('The server keeps running. Look around:');
  print();
  for (const [name, address] of Object.entries(pages)) row(name, address);
  print();
  row('Email', email);
  row('Password', password);
  row('API key', apiKey);
  print();
  print('The browser will warn that the certificate is signed by a CA of the demo. Continue');
  print('anyway, or trust the CA while the demo runs. It is the file');
  print(`${caPath}. To try the API:`);
  print();
  print(`  curl --cacert ${caPath} \\`);
  print(`    -u ${email}:${apiKey} \\`);
  print(`    ${url}/projects`);
  print();
  print('To start a build, push a change. The hook of the repository calls Assay:');
  print();
  print(`  git clone ${website}`);
  print('  cd website && echo "Back to the [front page](index.md)." >>pages/contact.md');
  print('  git commit -am "Link to the front page" && git push');
  print();
  print('Ctrl-C stops the demo and removes everything it created.');
}
