// The demo from its first check to the last trace removed: puts the parts on stage, has the story told, cleans up.
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startApp } from '../app.ts';
import { readSettings, type Settings } from '../config.ts';
import { hashPassword, newReadableSecret, newSecret } from '../domain/secret.ts';
import { createLog } from '../log.ts';
import { createAccount } from '../store/accounts.ts';
import { tlsDirectory } from '../store/data/paths.ts';
import { instanceOf } from '../store/database/settings.ts';
import { version } from '../version.ts';
import { createApiClient } from './api-client.ts';
import { startGitHost } from './git-host.ts';
import { checkHost, DemoFailure, removeTraces } from './host.ts';
import { startReceiver } from './receiver.ts';
import { createRepository } from './repository.ts';
import { GIT_HOST, history, LIVE, WEBSITE } from './sample.ts';
import { createScreen, type Screen } from './screen.ts';
import { tellStory } from './story.ts';
import { printSignIn, printSummary } from './summary.ts';

const EMAIL = 'demo@example.org';
const STORY_MS = 5 * 60_000;
const USUAL_PORT = 8443;

export type DemoOptions = {
  flags: ReadonlyMap<string, string>;
  environment: NodeJS.ProcessEnv;
  once: boolean;
};

export async function runDemo(options: DemoOptions): Promise<number> {
  const settings = await demoSettings(options);
  const screen = createScreen();
  const stopped = listenForStop();
  // A terminal that is closed takes the output with it, and must not keep the traces from being removed.
  process.stdout.on('error', () => {});
  const leave: (() => unknown)[] = [];
  let status = 1;
  try {
    status = await perform(settings, options.once, screen, stopped.signal, leave);
  } catch (error) {
    screen.clear();
    if (stopped.signal.aborted) process.stderr.write('assay: stopped before the end\n');
    else if (error instanceof DemoFailure) process.stderr.write(`assay: ${error.message}\n`);
    else process.stderr.write(`assay: the demo broke off: ${(error as Error).message}\n`);
  }
  if (leave.length > 0 && !(await removeAll(screen, leave))) status = 1;
  stopped.end();
  return status;
}

/** Every step is tried, whatever became of the others. */
async function removeAll(screen: Screen, leave: (() => unknown)[]): Promise<boolean> {
  const step = screen.step('Clean-up');
  const left: string[] = [];
  for (const one of leave.reverse()) {
    try {
      await one();
    } catch (error) {
      left.push((error as Error).message);
    }
  }
  const isGood = left.length === 0;
  step.end(isGood ? 'nothing is left behind' : `not all could be removed: ${left.join('; ')}`, isGood);
  return isGood;
}

async function perform(
  chosen: Settings,
  endsAtOnce: boolean,
  screen: Screen,
  stop: AbortSignal,
  leave: (() => unknown)[],
): Promise<number> {
  const startedAt = performance.now();
  const { paint } = screen;
  screen.print(paint('bold', `Assay ${version}`) + paint('dim', ' demo: all of it is temporary'));
  screen.print();
  const checking = screen.step('Host');
  checking.end(await checkHost(chosen));
  stop.throwIfAborted();

  const starting = screen.step('Server');
  const place = await mkdtemp(join(tmpdir(), 'assay-demo-'));
  leave.push(() => rm(place, { recursive: true, force: true }));
  const settings = { ...chosen, data: join(place, 'data') };
  // The receiver is on this host: a proxy has no part in it.
  const direct = process.env.NO_PROXY || process.env.no_proxy;
  process.env.NO_PROXY = [direct, '127.0.0.1'].filter(Boolean).join(',');
  const log = createLog(line => screen.print(line.trimEnd()));
  const app = await startApp(settings, { ...log, info() {} });
  const instance = instanceOf(app.db);
  leave.push(
    () => removeTraces(settings, instance),
    () => app.close(),
  );
  const password = newReadableSecret(3, 5);
  const apiKey = newSecret('assay');
  const passwordHash = await hashPassword(password);
  createAccount(app.db, { email: EMAIL, kind: 'user', admin: true, passwordHash, apiKey });
  starting.end(`${app.url}, account ${EMAIL}`);

  const hosting = screen.step('Git host');
  const repositories = join(place, 'repositories');
  await createRepository(join(repositories, WEBSITE), history);
  await createRepository(join(repositories, LIVE));
  const gitHost = await startGitHost(repositories);
  leave.push(() => gitHost.close());
  await writeFile(join(settings.data, 'ssh', 'config'), gitHost.clientConfig(GIT_HOST));
  hosting.end(`${GIT_HOST}, SSH on port ${gitHost.port} of loopback, ${history.length} commits`);

  const receiver = await startReceiver();
  leave.push(() => receiver.close());
  const caPath = join(tlsDirectory(settings.data), 'ca.pem');
  const api = createApiClient({
    url: app.url,
    ca: await readFile(caPath, 'utf8'),
    email: EMAIL,
    apiKey,
    signal: AbortSignal.any([stop, AbortSignal.timeout(STORY_MS)]),
  });
  leave.push(() => api.close());
  const { projectId, ran } = await tellStory({
    api,
    screen,
    receiver,
    liveRepository: join(repositories, LIVE),
    installKey: gitHost.letIn,
  });
  printSummary(screen, ran, performance.now() - startedAt);
  const isGood = ran.every(row => row.isGood);
  if (endsAtOnce) return isGood ? 0 : 1;
  printSignIn(screen, { url: app.url, projectId, email: EMAIL, password, apiKey, caPath });
  if (!stop.aborted) await once(stop, 'abort');
  return isGood ? 0 : 1;
}

/** Aborts at the first signal; further ones change nothing, so that the cleaning up is done to its end. */
function listenForStop() {
  const controller = new AbortController();
  const stop = () => controller.abort();
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, stop);
  return {
    signal: controller.signal,
    end() {
      for (const signal of signals) process.off(signal, stop);
    },
  };
}

/** The person's settings, but for what makes it a demo. */
async function demoSettings({ flags, environment }: DemoOptions): Promise<Settings> {
  const chosen = new Map(flags);
  const setDefault = (name: string, value: string) => {
    const variable = `ASSAY_${name.toUpperCase().replaceAll('-', '_')}`;
    if (!chosen.has(`--${name}`) && !environment[variable]) chosen.set(`--${name}`, value);
  };
  setDefault('listen', `127.0.0.1:${(await isFree(USUAL_PORT)) ? USUAL_PORT : 0}`);
  // A small disk is enough for a demo.
  setDefault('min-free-disk', '64MiB');
  const others = flags.get('--webhook-allow') ?? environment.ASSAY_WEBHOOK_ALLOW;
  chosen.set('--webhook-allow', [others, '127.0.0.0/8'].filter(Boolean).join(','));
  // It has a certificate of its own, for the address that it listens on.
  const { ASSAY_DATA, ASSAY_BASE_URL, ASSAY_TLS_CERT, ASSAY_TLS_KEY, ...rest } = environment;
  return readSettings(chosen, rest).settings;
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
  } catch {
    return false;
  }
  server.close();
  await once(server, 'close');
  return true;
}
