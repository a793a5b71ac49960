// The scenario of the demo, step by step through the public API. Returns the rows of the summary.
import type { ApiClient, Wire } from './api-client.ts';
import type { Receiver } from './receiver.ts';
import { type DescribedCommit, headOf } from './repository.ts';
import {
  addressOf,
  LIVE,
  NOT_RUN,
  pushed,
  requests,
  type SampleRequest,
  type SampleSuite,
  suites,
  tool,
  toolArchive,
  WEBSITE,
} from './sample.ts';
import type { Screen, Tone } from './screen.ts';
import { type Watch, watchProject } from './watch.ts';

const MASKED = 'its secret is masked in the log';

/** A row of the summary. */
export type SummaryRow = {
  what: string;
  result: string;
  isGood: boolean;
  ms?: number;
  note?: string;
  /** The build that it is about. */
  buildId?: string;
};

type Scenario = {
  api: ApiClient;
  screen: Screen;
  receiver: Receiver;
  /** The path of the repository that is deployed to. */
  liveRepository: string;
  /** Installs the project's key in the Git host. */
  installKey(publicKey: string): void;
  /** Makes the Git host call that address after each push to the website. */
  installHook(url: string, secret: string): Promise<void>;
  push(commit: DescribedCommit): Promise<void>;
};

type Project = {
  id: string;
  path: string;
  suiteNames: Map<string, string>;
  dependencyId: string;
  watch: Watch;
};

export async function runScenario(scenario: Scenario): Promise<{ projectId: string; ran: SummaryRow[] }> {
  const project = await setUp(scenario);
  const ran = [await compile(scenario, project)];
  const { rows, commitId } = await build(scenario, project);
  ran.push(...rows, ...(await push(scenario, project)));
  ran.push(await deploy(scenario, project, commitId), await webhooks(scenario, project));
  return { projectId: project.id, ran };
}

async function setUp(scenario: Scenario): Promise<Project> {
  const { api, screen, receiver } = scenario;
  const step = screen.step('Project');
  const project = await api.post('/projects', {
    name: 'Website',
    description: 'A sample project of the demo.',
    repository_url: addressOf(WEBSITE),
    badge: 'true',
  });
  const path = `/projects/${project.id_str}`;
  scenario.installKey(String(project.ssh_public_key));
  const dependency = await api.post('/dependencies', tool);
  const dependencyId = String(dependency.id_ref);
  const suiteNames = new Map<string, string>();
  for (const suite of suites) suiteNames.set(await addSuite(api, path, suite, dependencyId), suite.name);
  for (const type of ['build', 'dependency']) {
    const notification = await api.post(`${path}/notifications`, {
      notifiable_type: type,
      name: 'webhook',
      'options[url]': receiver.urlFor(type),
    });
    receiver.expectSecret(type, String(notification.signing_secret));
  }
  const trigger = await api.post(`${path}/triggers`, { name: 'Push', trigger_type: 'push' });
  await scenario.installHook(String(trigger.url), String(trigger.secret));
  const watch = await watchProject(api, project.id_str);
  const rules = suites.filter(({ rule }) => rule).length;
  step.end(`Website (${WEBSITE}): ${suites.length} suites, ${rules} rules, 2 webhooks, a push trigger`);
  return { id: project.id_str, path, suiteNames, dependencyId, watch };
}

/** Returns the ID of the suite. */
async function addSuite(api: ApiClient, path: string, suite: SampleSuite, dependencyId: string) {
  const { rule, variable, usesTool, ...fields } = suite;
  const { id_str: id } = await api.post(`${path}/suites`, fields);
  if (rule) await api.post(`${path}/suites/${id}/rules`, rule);
  if (variable) await api.post(`${path}/suites/${id}/environment_variables`, variable);
  if (usesTool) await api.post(`${path}/suites/${id}/dependencies`, { dependency_id: dependencyId });
  return id;
}

async function compile({ api, screen }: Scenario, { dependencyId }: Project): Promise<SummaryRow> {
  const startedAt = performance.now();
  const step = screen.step('Dependency');
  const archive = await toolArchive();
  await api.upload(`/dependencies/${dependencyId}/archive`, archive);
  let state = '';
  let error = '';
  for await (const { event, record } of api.follow(`/dependencies/${dependencyId}/firehose`)) {
    if (event === 'log') step.say(lastLine(String(record.text)));
    else {
      state = String(record.marketplace_state);
      error = String(record.error ?? '');
      if (event === 'state') step.row(tool.name, words(state), toneOf(state));
    }
  }
  const isGood = state === 'compiled';
  step.end(`${tool.name} ${words(state)} from ${archive.length} bytes of C sources ${error}`.trim(), isGood);
  const ms = performance.now() - startedAt;
  return { what: `Compile ${tool.name}`, result: words(state), isGood, ms, note: error };
}

async function build(
  scenario: Scenario,
  project: Project,
): Promise<{ rows: SummaryRow[]; commitId: string }> {
  const { api, screen } = scenario;
  const step = screen.step('Builds');
  const refs = new Map<string, string>();
  project.watch.listen(({ event, record }) => {
    if (event === 'build_request.enqueued') {
      const request = record.build_request as Wire;
      refs.set(request.id_str, String(request.commit_ref));
    }
    if (!event.startsWith('build.')) return;
    const { build_request_id_str, suite_id_str, build_state } = record.build as Record<string, string>;
    // The user may add suites and requests meanwhile.
    const ref = refs.get(build_request_id_str ?? '') ?? 'another request';
    const label = `${ref}: ${project.suiteNames.get(suite_id_str ?? '') ?? 'another suite'}`;
    step.say('');
    step.row(label, words(build_state ?? ''), toneOf(build_state ?? ''));
  });
  const requested: (SampleRequest & { id: string })[] = [];
  for (const wave of requests) {
    step.say(`fetching ${wave.map(({ ref }) => ref).join(', ')} over SSH`);
    const sent = wave.map(async request => {
      const { id_str: id } = await api.post(`${project.path}/build_requests`, { commit_ref: request.ref });
      return { ...request, id };
    });
    requested.push(...(await Promise.all(sent)));
    await project.watch.until(events =>
      requested.every(({ id }) =>
        events.some(
          ({ event, record }) =>
            event === 'build_request.finished' && (record.build_request as Wire).id_str === id,
        ),
      ),
    );
  }
  const rows: SummaryRow[] = [];
  const commitIds: string[] = [];
  for (const { ref, id, expected } of requested) {
    const request = await api.get(`${project.path}/build_requests/${id}`);
    commitIds.push(String(request.commit_id_str));
    rows.push(...(await outcomes(scenario, project, ref, request, expected)));
  }
  const wrong = rows.filter(({ isGood }) => !isGood).length;
  const ended = rows.filter(({ ms }) => ms !== undefined).length;
  step.end(
    `${requested.length} requests, ${ended} builds, ${wrong === 0 ? 'all as expected' : `${wrong} not as expected`}`,
    wrong === 0,
  );
  return { rows, commitId: commitIds[0] ?? '' };
}

/** A push to the Git host, whose hook requests the build. */
async function push(scenario: Scenario, project: Project): Promise<SummaryRow[]> {
  const { commit, expected } = pushed;
  const step = scenario.screen.step('Push');
  const what = `push to ${commit.branch}`;
  step.say(`${what}: ${commit.message.trim()}`);
  await scenario.push(commit);
  let request: Wire | undefined;
  await project.watch.until(events => {
    const found = events.find(
      ({ event, record }) =>
        event === 'build_request.finished' && (record.build_request as Wire).trigger === 'push',
    );
    request = found?.record.build_request as Wire | undefined;
    return request !== undefined;
  });
  const rows = await outcomes(scenario, project, what, request as unknown as Wire, expected);
  const isGood = rows.every(row => row.isGood);
  step.end(`git push, hook, build: ${words(String(request?.build_state))}`, isGood);
  return rows;
}

/** The result of each suite for one request, with the reason if it did not run. */
async function outcomes(
  { api }: Scenario,
  { path, suiteNames }: Project,
  ref: string,
  request: Wire,
  expected: Record<string, string>,
): Promise<SummaryRow[]> {
  if (request.commit_id_str === '')
    return [
      { what: ref, result: words(String(request.build_state)), isGood: false, note: String(request.error) },
    ];
  const commit = `${path}/commits/${request.commit_id_str}`;
  const builds = await api.get<Wire[]>(`${commit}/builds`);
  const decisions = await api.get<Wire[]>(`${commit}/suites`);
  const rows = Object.entries(expected).map(async ([name, end]): Promise<SummaryRow> => {
    const what = `${ref}: ${name}`;
    const found = builds.find(one => suiteNames.get(String(one.suite_id_str)) === name);
    if (!found) {
      const rules = decisions.find(one => one.suite === name)?.rules as Record<string, unknown>[] | undefined;
      const broken = rules?.find(({ holds }) => holds === false);
      const note = broken && `rule ${broken.subject} ${words(String(broken.operator))} ${broken.value}`;
      return { what, result: NOT_RUN, isGood: end === NOT_RUN, ...(note !== undefined && { note }) };
    }
    const state = String(found.build_state);
    const log = await api.log(`${path}/builds/${found.id_str}/log`);
    const secret = suites.find(suite => suite.name === name)?.variable?.content;
    const isMasked = secret !== undefined && !log.includes(secret);
    const isGood = state === end && (secret === undefined || isMasked);
    const ms = Date.parse(String(found.finished_at)) - Date.parse(String(found.started_at));
    const row = { what, isGood, ms, buildId: found.id_str };
    if (state === 'passed') {
      const notes = [isMasked ? MASKED : '', testsOf(found), artifactsOf(found)];
      return { ...row, result: state, note: notes.filter(note => note !== '').join(', ') };
    }
    const result = `${words(state)}${isGood ? ', as expected' : ''}`;
    return { ...row, result, note: String(found.error ?? complaintOf(log)) };
  });
  return Promise.all(rows);
}

async function deploy(scenario: Scenario, { path, watch }: Project, commitId: string): Promise<SummaryRow> {
  const { api, screen } = scenario;
  const startedAt = performance.now();
  const step = screen.step('Deploy');
  const branch = 'live';
  const strategy = await api.post(`${path}/deploy_strategies`, {
    name: 'Live',
    strategy_type: 'git',
    'options[repository_url]': addressOf(LIVE),
    'options[local_branch]': 'main',
    'options[remote_branch]': branch,
  });
  step.say(`pushing main to ${addressOf(LIVE)}`);
  const { id_str: id } = await api.post(`${path}/deploys`, {
    deploy_strategy_id: strategy.id_str,
    commit_id: commitId,
  });
  await watch.until(events =>
    events.some(({ event, record }) => event === 'deploy.finished' && (record.deploy as Wire).id_str === id),
  );
  const { state } = await api.get(`${path}/deploys/${id}`);
  const { ref } = await api.get(`${path}/commits/${commitId}`);
  const isGood = state === 'deployed' && (await headOf(scenario.liveRepository, branch)) === ref;
  step.end(`main ${state} to ${addressOf(LIVE)}, branch ${branch}`, isGood);
  const note = `${String(ref).slice(0, 8)} to ${addressOf(LIVE)}`;
  return {
    what: 'Deploy main',
    result: String(state),
    isGood,
    ms: performance.now() - startedAt,
    note: isGood ? note : lastLine(await api.log(`${path}/deploys/${id}/log`)),
  };
}

async function webhooks({ api, screen, receiver }: Scenario, { path }: Project): Promise<SummaryRow> {
  const step = screen.step('Webhooks');
  const events = await api.get<Wire[]>(`${path}/events`);
  step.say(`waiting for ${events.length} deliveries`);
  const received = await receiver.received(events.map(({ id_str }) => id_str));
  const isGood = received.size === events.length && receiver.forged() === 0;
  const result = `${received.size} of ${events.length} received`;
  const note =
    receiver.forged() === 0 ? 'every signature is valid' : `${receiver.forged()} with an invalid signature`;
  step.end(`${result}, ${note}`, isGood);
  return { what: 'Webhooks', result, isGood, note };
}

function testsOf({ tests }: Wire): string {
  if (!tests) return '';
  const { passed, flaky, fixed } = tests as Record<string, number>;
  return `${passed} tests${flaky ? `, ${flaky} flaky` : ''}${fixed ? `, ${fixed} fixed` : ''}`;
}

/** Without test reports. */
const artifactsOf = ({ artifacts, tests }: Wire) => (artifacts && !tests ? `${artifacts} artifacts` : '');

const tones: Record<string, Tone> = {
  enqueued: 'dim',
  enqueued_for_compile: 'dim',
  running: 'busy',
  compiling: 'busy',
  passed: 'good',
  compiled: 'good',
};
const toneOf = (state: string) => tones[state] ?? 'bad';

const words = (state: string) => state.replaceAll('_', ' ');
const lastLine = (text: string) => text.trimEnd().split('\n').at(-1) ?? '';

/** The first failure in TAP output, or the last line. */
function complaintOf(log: string): string {
  return log.split('\n').find(line => line.startsWith('not ok')) ?? lastLine(log);
}
