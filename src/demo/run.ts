// Runs the demo: checks the host, starts the server, the Git host and the receiver, runs the scenario, and removes
// everything.
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { readSettings, type Settings } from '../config.ts';
import { hookTokenFile, postReceiveScript } from '../domain/trigger/post-receive.ts';
import { createLog } from '../log.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import { version } from '../version.ts';
import { checkHost, DemoFailure, removeTraces } from './host.ts';
import { startReceiver } from './receiver.ts';
import { installHook, pushCommit } from './repository.ts';
import { GIT_HOST, history, LIVE, WEBSITE } from './sample.ts';
import { runScenario } from './scenario.ts';
import { createScreen, type Screen } from './screen.ts';
import { type Cleanups, createPlace, startDemoGitHost, startDemoServer } from './server.ts';
import { printSignIn, printSummary } from './summary.ts';
import { performSwarm } from './swarm-demo.ts';

const DEFAULT_PORT = 8443;

type DemoOptions = {
  flags: ReadonlyMap<string, string>;
  environment: NodeJS.ProcessEnv;
  once: boolean;
  /** Three machines instead of this host. */
  swarm: boolean;
};

export async function runDemo(options: DemoOptions): Promise<number> {
  const settings = await demoSettings(options);
  const screen = createScreen();
  const stopped = listenForStop();
  // Closing the terminal breaks the output, and must not prevent the clean-up.
  process.stdout.on('error', () => {});
  const cleanups: Cleanups = [];
  let status = 1;
  try {
    const run = options.swarm ? performSwarm : perform;
    status = await run(settings, options.once, screen, stopped.signal, cleanups);
  } catch (error) {
    screen.clear();
    if (stopped.signal.aborted) process.stderr.write('assay: stopped before the end\n');
    else if (error instanceof DemoFailure) process.stderr.write(`assay: ${error.message}\n`);
    else process.stderr.write(`assay: the demo failed: ${(error as Error).message}\n`);
  }
  if (cleanups.length > 0 && !(await removeAll(screen, cleanups))) status = 1;
  stopped.end();
  return status;
}

/** Runs every step, even if others fail. */
async function removeAll(screen: Screen, cleanups: Cleanups): Promise<boolean> {
  const step = screen.step('Clean-up');
  const left: string[] = [];
  for (const one of cleanups.reverse()) {
    try {
      await one();
    } catch (error) {
      left.push((error as Error).message);
    }
  }
  const isGood = left.length === 0;
  step.end(
    isGood ? 'nothing is left behind' : `some things could not be removed: ${left.join('; ')}`,
    isGood,
  );
  return isGood;
}

async function perform(
  chosen: Settings,
  endsAtOnce: boolean,
  screen: Screen,
  stop: AbortSignal,
  cleanups: Cleanups,
): Promise<number> {
  const startedAt = performance.now();
  const { paint } = screen;
  screen.print(paint('bold', `Assay ${version}`) + paint('dim', ' demo: everything is temporary'));
  screen.print();
  const checking = screen.step('Host');
  checking.end(await checkHost(chosen));
  stop.throwIfAborted();

  const starting = screen.step('Server');
  const place = await createPlace(cleanups);
  const settings = { ...chosen, data: join(place, 'data') };
  // The receiver is on this host and must not be called through a proxy.
  const direct = process.env.NO_PROXY || process.env.no_proxy;
  process.env.NO_PROXY = [direct, '127.0.0.1'].filter(Boolean).join(',');
  const log = createLog(line => screen.print(line.trimEnd()));
  const server = await startDemoServer(settings, { ...log, info() {} });
  const { app, email, password, apiKey, caPath } = server;
  const instance = instanceOf(app.db);
  cleanups.push(
    () => removeTraces(settings, instance),
    () => app.close(),
  );
  starting.end(`${app.url}, account ${email}`);

  const hosting = screen.step('Git host');
  const repositories = join(place, 'repositories');
  const website = join(repositories, WEBSITE);
  const gitHost = await startDemoGitHost(repositories, settings.data, cleanups, [LIVE]);
  hosting.end(`${GIT_HOST}, SSH on port ${gitHost.port} of loopback, ${history.length} commits`);

  const receiver = await startReceiver();
  cleanups.push(() => receiver.close());
  const api = await server.openApi(stop, cleanups);
  const { projectId, ran } = await runScenario({
    api,
    screen,
    receiver,
    liveRepository: join(repositories, LIVE),
    installKey: gitHost.allow,
    async installHook(url, secret) {
      const tokenPath = join(place, 'hook-token');
      await writeFile(tokenPath, hookTokenFile(secret), { mode: 0o600 });
      await installHook(website, postReceiveScript(url, caPath, tokenPath));
    },
    push: commit => pushCommit(website, join(place, 'clone.git'), commit),
  });
  printSummary(screen, ran, performance.now() - startedAt);
  const isGood = ran.every(row => row.isGood);
  if (endsAtOnce) return isGood ? 0 : 1;
  const project = `${app.url}/ui/projects/${projectId}`;
  const buildOf = (what: string) => `${project}/builds/${ran.find(row => row.what === what)?.buildId}`;
  printSignIn(screen, {
    url: app.url,
    pages: {
      Project: project,
      'A regression': buildOf('redesign: Unit tests'),
      Artifacts: `${buildOf('main: Site')}/artifacts`,
      'Flaky tests': `${project}/flaky`,
    },
    email,
    password,
    apiKey,
    caPath,
    website,
  });
  if (!stop.aborted) await once(stop, 'abort');
  return isGood ? 0 : 1;
}

/** Aborts at the first signal. Later signals are ignored, so that the clean-up can finish. */
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

/** The user's settings, except for those that the demo has to choose. */
async function demoSettings({ flags, environment }: DemoOptions): Promise<Settings> {
  const chosen = new Map(flags);
  const setDefault = (name: string, value: string) => {
    const variable = `ASSAY_${name.toUpperCase().replaceAll('-', '_')}`;
    if (!chosen.has(`--${name}`) && !environment[variable]) chosen.set(`--${name}`, value);
  };
  setDefault('listen', `127.0.0.1:${(await isFree(DEFAULT_PORT)) ? DEFAULT_PORT : 0}`);
  // A demo needs little disk space.
  setDefault('min-free-disk', '64MiB');
  const others = flags.get('--webhook-allow') ?? environment.ASSAY_WEBHOOK_ALLOW;
  chosen.set('--webhook-allow', [others, '127.0.0.0/8'].filter(Boolean).join(','));
  // The demo creates its own certificate for the address that it listens on.
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
