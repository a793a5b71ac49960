// The API contract as a table, written independently of the program: every endpoint with its access rule, its scope,
// its fields and its response.
import { gzipSync } from 'node:zlib';
import type { Scope } from '../../src/domain/access.ts';
import type { Planted } from '../support/app.ts';
import { smallBundle } from '../support/bundle.ts';
import type { Fields } from '../support/client.ts';

/**
 * none: no credentials. signed in: any account, also an unpaid one. users: any account of kind user. both: whoever can
 * see the project. owner: the project's owner. sees: the dependency's owner, or anyone if it is shared. dependency: the
 * dependency's owner.
 */
export type Who = 'none' | 'signed in' | 'users' | 'both' | 'owner' | 'sees' | 'dependency' | 'loopback';
export type Row = {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  who: Who;
  scope?: Scope;
  status: number;
  /** A body that succeeds. */
  form?: (planted: Planted) => Fields;
  /** A query that succeeds. May contain parameters, like the path. */
  query?: string;
  /** A binary body that succeeds. */
  archive?: Buffer;
  /** Which dependency is used for :dependency_id. */
  dependency?: 'used' | 'free';
  /** Needs the secret of the trigger. */
  hook?: true;
  /** Uses the schedule for :trigger_id. */
  schedule?: true;
};

let made = 0;
/** A new unique name. */
export const fresh = (word: string) => `${word} ${++made}`;

const P = '/projects/:project_id';
const S = `${P}/suites/:suite_id`;
const N = `${P}/notifications/:notification_id`;
const T = `${P}/triggers/:trigger_id`;
const B = `${P}/builds/:build_id`;
const D = '/dependencies/:dependency_id';

export const projectForm = (): Fields => ({
  name: fresh('Website'),
  repository_url: 'git@git.example.org:team/website.git',
});
export const suiteForm = (): Fields => ({ name: fresh('Unit tests'), command: 'make check' });
export const ruleForm = (): Fields => ({
  subject: 'commit.branches',
  operator: 'contains',
  value: 'main',
});
export const variableForm = (): Fields => ({ name: `NAME_${++made}`, content: 'value' });
export const strategyForm = (): Fields => ({
  name: fresh('Production'),
  strategy_type: 'git',
  'options[repository_url]': 'git@git.example.org:team/live.git',
  'options[local_branch]': 'main',
  'options[remote_branch]': 'live',
});
export const notificationForm = (): Fields => ({
  notifiable_type: 'build',
  name: 'webhook',
  'options[url]': 'https://hooks.example.org/ci',
});
export const triggerForm = (): Fields => ({ name: fresh('Push'), trigger_type: 'push' });
export const dependencyForm = (): Fields => ({
  name: fresh('zlib'),
  command: './configure --prefix=/srv/dependency && make install',
});

const get = (path: string, who: Who, scope?: Scope): Row => ({
  method: 'GET',
  path,
  who,
  ...(scope && { scope }),
  status: 200,
});
const post = (
  path: string,
  who: Who,
  scope: Scope,
  form?: (planted: Planted) => Fields,
  status = 201,
): Row => ({ method: 'POST', path, who, scope, status, ...(form && { form }) });
const put = (path: string, who: Who, scope: Scope, form: () => Fields): Row => ({
  method: 'PUT',
  path,
  who,
  scope,
  status: 200,
  form,
});
const remove = (path: string, who: Who, scope: Scope): Row => ({
  method: 'DELETE',
  path,
  who,
  scope,
  status: 200,
});

/** The endpoints of the original API, in their order. */
export const originalEndpoints: Row[] = [
  get('/ping', 'none'),
  get('/whoami', 'signed in', 'user'),
  post('/projects', 'users', 'projects', projectForm),
  get(P, 'both', 'projects'),
  put(P, 'owner', 'projects', projectForm),
  get(`${P}/build_requests`, 'both', 'build_requests'),
  get(`${P}/commits`, 'both', 'commits'),
  get(`${P}/commits/:commit_id`, 'both', 'commits'),
  get(`${P}/suites`, 'both', 'suites'),
  post(`${P}/suites`, 'both', 'suites', suiteForm),
  get(`${S}/rules`, 'both', 'suites'),
  get(`${S}/dependencies`, 'both', 'suites'),
  get(`${S}/environment_variables`, 'both', 'suites'),
  post(`${P}/deploy_strategies`, 'both', 'deploys', strategyForm),
  get(`${P}/deploy_strategies`, 'both', 'deploys'),
  get(`${P}/deploy_strategies/:deploy_strategy_id`, 'both', 'deploys'),
  get(`${P}/deploys`, 'both', 'deploys'),
  get(`${P}/deploys/:deploy_id`, 'both', 'deploys'),
  get(`${P}/notifications`, 'both', 'notifications'),
  post(`${P}/notifications`, 'both', 'notifications', notificationForm),
  remove(N, 'owner', 'notifications'),
  post('/dependencies', 'users', 'dependencies', dependencyForm),
  { ...post(`${D}/archive`, 'dependency', 'dependencies'), archive: gzipSync('source'), status: 202 },
  get(D, 'sees', 'dependencies'),
];

/** The endpoints that complete the original ones: single records, changes, deletes, logs, events and monitoring. */
export const completingEndpoints: Row[] = [
  get('/projects', 'signed in', 'projects'),
  remove(P, 'owner', 'projects'),
  get(`${P}/collaborators`, 'both', 'projects'),
  post(`${P}/collaborators`, 'owner', 'projects', () => ({ email: `new${++made}@example.org` })),
  remove(`${P}/collaborators/:collaborator_id`, 'owner', 'projects'),
  post(`${P}/build_requests`, 'both', 'build_requests_create', () => ({ commit_ref: 'main' })),
  get(`${P}/build_requests/:build_request_id`, 'both', 'build_requests'),
  post(`${P}/build_requests/:build_request_id/cancel`, 'both', 'build_requests_create', undefined, 200),
  get(`${P}/commits/:commit_id/builds`, 'both', 'commits'),
  get(`${P}/builds/:build_id`, 'both', 'commits'),
  get(`${P}/builds/:build_id/log`, 'both', 'commits'),
  post(`${P}/builds/:build_id/cancel`, 'both', 'build_requests_create', undefined, 200),
  post(`${P}/builds/:build_id/rerun`, 'both', 'build_requests_create'),
  get(S, 'both', 'suites'),
  put(S, 'both', 'suites', suiteForm),
  remove(S, 'both', 'suites'),
  post(`${S}/rules`, 'both', 'suites', ruleForm),
  remove(`${S}/rules/:rule_id`, 'both', 'suites'),
  post(`${S}/dependencies`, 'both', 'suites', ({ free_dependency_id }) => ({
    dependency_id: String(free_dependency_id),
  })),
  { ...remove(`${S}/dependencies/:dependency_id`, 'both', 'suites'), dependency: 'used' },
  post(`${S}/environment_variables`, 'both', 'suites', variableForm),
  put(`${S}/environment_variables/:variable_id`, 'both', 'suites', variableForm),
  remove(`${S}/environment_variables/:variable_id`, 'both', 'suites'),
  put(`${P}/deploy_strategies/:deploy_strategy_id`, 'both', 'deploys', strategyForm),
  remove(`${P}/deploy_strategies/:deploy_strategy_id`, 'owner', 'deploys'),
  post(`${P}/deploys`, 'both', 'deploys', ({ deploy_strategy_id, commit_id }) => ({
    deploy_strategy_id: String(deploy_strategy_id),
    commit_id: String(commit_id),
  })),
  post(`${P}/deploys/:deploy_id/cancel`, 'both', 'deploys', undefined, 200),
  get(`${P}/deploys/:deploy_id/log`, 'both', 'deploys'),
  get(`${N}/deliveries`, 'both', 'notifications'),
  post(`${N}/deliveries/:delivery_id/redeliver`, 'both', 'notifications', undefined, 200),
  get('/dependencies', 'users', 'dependencies'),
  put(D, 'dependency', 'dependencies', dependencyForm),
  remove(D, 'dependency', 'dependencies'),
  post(`${D}/share`, 'dependency', 'dependencies', undefined, 200),
  post(`${D}/unshare`, 'dependency', 'dependencies', undefined, 200),
  post(`${D}/cancel`, 'dependency', 'dependencies', undefined, 200),
  get(`${D}/log`, 'dependency', 'dependencies'),
  get(`${P}/firehose`, 'both', 'commits'),
  get(`${P}/builds/:build_id/firehose`, 'both', 'commits'),
  get(`${D}/firehose`, 'dependency', 'dependencies'),
  get(`${P}/events`, 'both', 'commits'),
  get(`${P}/badge.svg`, 'none'),
  get('/openapi.json', 'none'),
  get('/healthz', 'none'),
  get('/metrics', 'loopback'),
];

/**
 * Further endpoints: new sign-in links, rule decisions, the order of dependencies, emptying a cache, changes, tests and
 * redelivery of notifications, triggers and their hooks, artifacts of builds, compiles, snapshots, the client.
 */
export const additionalEndpoints: Row[] = [
  remove(`${S}/cache`, 'both', 'suites'),
  {
    ...post(`${S}/dependencies/:dependency_id/last`, 'both', 'suites', undefined, 200),
    dependency: 'used',
  },
  post(`${P}/collaborators/:collaborator_id/invitation`, 'owner', 'projects'),
  get(`${P}/commits/:commit_id/suites`, 'both', 'commits'),
  get(`${P}/build_requests/:build_request_id/builds`, 'both', 'commits'),
  get(`${B}/log/times`, 'both', 'commits'),
  put(N, 'both', 'notifications', () => ({ 'options[url]': 'https://hooks.example.org/ci' })),
  post(`${N}/test`, 'both', 'notifications'),
  post(`${N}/enable`, 'both', 'notifications', undefined, 200),
  get(`${P}/triggers`, 'both', 'build_requests'),
  post(`${P}/triggers`, 'both', 'build_requests_create', triggerForm),
  get(T, 'both', 'build_requests'),
  put(T, 'both', 'build_requests_create', () => ({ name: fresh('Push') })),
  remove(T, 'owner', 'build_requests_create'),
  post(`${T}/secret`, 'both', 'build_requests_create', undefined, 200),
  { ...post(`${T}/fire`, 'both', 'build_requests_create', () => ({}), 200), schedule: true },
  get(`${T}/firings`, 'both', 'build_requests'),
  get(`${P}/builds/:build_id/tests`, 'both', 'commits'),
  get(`${S}/tests`, 'both', 'commits'),
  get(`${P}/tests/:test_id`, 'both', 'commits'),
  get(`${P}/tests/:test_id/history`, 'both', 'commits'),
  get(`${B}/artifacts`, 'both', 'commits'),
  get(`${B}/artifacts/:artifact_id`, 'both', 'commits'),
  { ...get(`${B}/artifact`, 'both', 'commits'), query: 'path=coverage/index.html' },
  get(`${B}/artifacts.zip`, 'both', 'commits'),
  { ...get(`${S}/artifact`, 'both', 'commits'), query: 'path=coverage/index.html&branch=main' },
  post(`${B}/keep`, 'both', 'commits', undefined, 200),
  post(`${B}/unkeep`, 'both', 'commits', undefined, 200),
  remove(`${B}/artifacts`, 'owner', 'commits'),
  { ...get(`${B}/diff`, 'both', 'commits'), query: 'against=:build_id' },
  { method: 'POST', path: '/hooks/:trigger_id', who: 'none', status: 200, hook: true },
  { ...get(`${P}/search`, 'both', 'commits'), query: 'q=refused' },
  get(`${P}/builds/:build_id/similar`, 'both', 'commits'),
  { ...post(`${P}/snapshots`, 'both', 'build_requests_create'), archive: smallBundle },
  get(`${P}/snapshots/:snapshot_id`, 'both', 'build_requests'),
  get(`${D}/files`, 'sees', 'dependencies'),
  get(`${D}/artifact`, 'sees', 'dependencies'),
  post(`${D}/compile`, 'dependency', 'dependencies', () => ({}), 200),
  post(`${D}/compile_dependents`, 'dependency', 'dependencies', undefined, 200),
  get('/cli/assay.mjs', 'none'),
];

export const contract: Row[] = [...originalEndpoints, ...completingEndpoints, ...additionalEndpoints];

export function pathOf(row: Row, planted: Planted): string {
  const path = row.query === undefined ? row.path : `${row.path}?${row.query}`;
  return path.replace(/:(\w+)/g, (_, name: string) => String(idIn(row, name, planted)));
}

/** The planted ID for a parameter of the path. */
export function idIn(row: Pick<Row, 'dependency' | 'schedule'>, name: string, planted: Planted): bigint {
  if (name === 'dependency_id')
    return planted[row.dependency === 'used' ? 'used_dependency_id' : 'free_dependency_id'];
  return planted[name === 'trigger_id' && row.schedule ? 'schedule_id' : (name as keyof Planted)];
}

export const ofRow = (row: Row) => `${row.method} ${row.path}`;
