// Example values for the API reference and the OpenAPI document: by field name, with exceptions for some records.

import { type JsonSchema, wireId } from './wire.ts';

const FIRST_ID = 865128329846784001n;
const HASH = '3f786850e387550fdab836ed7e6dc881de23001b';
const TIME = '2027-01-31T12:00:00.000+00:00';

/** Names of IDs; each has a different example. */
const ids = [
  'id',
  'project_id',
  'suite_id',
  'commit_id',
  'build_id',
  'build_request_id',
  'deploy_strategy_id',
  'event_id',
  'trigger_id',
  'build_id',
  'dependency_id',
  'first_build_id',
  'snapshot_id',
];

const ARTIFACT = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08';
const OLD_ARTIFACT = '2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae';
const HOST = 'assay/host:7a1c04f2b9d83e655c10';
const SERVER = 'https://ci.example.org';

const byName: Record<string, unknown> = {
  access_token: 'Jq0p2Yc5…',
  archive_content_type: 'application/gzip',
  after: HASH,
  archive_file_size: 1512791,
  attempts: 1,
  before: '0b3b1f8d8a8a3e4e4a4ff36b3e4c4b1f3f1f7b0a',
  branch: 'main',
  authorization_endpoint: `${SERVER}/oauth2/authorize`,
  build_state: 'passed',
  command: 'make check',
  commit_ref: 'main',
  content: 'https://api.example.org',
  content_type: 'text/html; charset=utf-8',
  context: 'assay',
  contexts: 'both',
  classname: 'tests.test_footer',
  created_by: 'ada@example.org',
  cron: '0 3 * * *',
  delivery: '72d3162e-cc78-11e3-81ab-4c9367dc0958',
  deploy_finished_at: TIME,
  deploy_started_at: TIME,
  description: '',
  destroyed: true,
  duration_ms: 84,
  email: 'bob@example.org',
  event: 'build.finished',
  error: null,
  exit_code: 0,
  failures: 1,
  file: 'tests/test_footer.py',
  finished_at: TIME,
  flaky: false,
  holds: true,
  issuer: SERVER,
  last_error: null,
  launch_command: '',
  local_branch: 'main',
  marketplace_state: 'compiled',
  median_duration_ms: 80,
  message: 'Fix the footer\n',
  name: 'Website',
  next_attempt_at: null,
  node: 'builder-2',
  offset: 0,
  operator: 'contains',
  owned: true,
  pushed_by: 'ada',
  path: 'coverage/index.html',
  prefix: '/srv/dependency',
  ref: HASH,
  remote_branch: 'main',
  repository_url: 'git@git.example.org:team/website.git',
  reason: null,
  refused_at: null,
  refused_count: 0,
  secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  redirect_uri: 'urn:ietf:wg:oauth:2.0:oob',
  resent_at: null,
  response_excerpt: 'ok',
  response_ms: 84,
  response_status: 200,
  result: 'passed',
  revocation_endpoint: `${SERVER}/oauth2/revoke`,
  runs: true,
  saw: ['main'],
  scm_author_email: 'ada@example.org',
  scm_author_name: 'Ada',
  scm_authored_date: '2027-01-31T13:00:00+01:00',
  scm_committed_date: '2027-01-31T13:00:00+01:00',
  scm_committer_email: 'ada@example.org',
  scm_committer_name: 'Ada',
  scope: 'projects commits',
  score: 0.02,
  sha256: 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
  size: 5210,
  size_bytes: 5210,
  service_documentation: `${SERVER}/ui/api`,
  source: '',
  ssh_public_key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA… assay-website@ci.example.org',
  tags: '',
  time_zone: 'Europe/Berlin',
  started_at: TIME,
  state: 'deployed',
  subject: 'commit.branches',
  suite: 'Unit tests',
  text: 'all tests passed\n',
  token_endpoint: `${SERVER}/oauth2/access_token`,
  url: 'https://hooks.example.org/assay',
  value: 'main',
  version: 1,
};

const dependency = {
  name: 'zlib',
  command: './configure --prefix=/srv/dependency && make install',
  source: 'zlib-1.3.1',
};
const push = {
  branches: '*',
  tags: '',
  pull_requests: false,
  pull_request_variables: false,
  reconcile: 21_600,
};
const byRecord: Record<string, Record<string, unknown>> = {
  BuildRequest: { build_state: 'enqueued', commit_id: null, commit_id_str: '' },
  BuildDiff: { chosen: 'branch' },
  BuildTest: { name: 'test_year' },
  Cause: { kind: 'dependencies', text: 'The dependency zlib was compiled again with another result.' },
  ChangedFile: { path: 'src/footer.html', change: 'modified' },
  CommandChange: { before: 'make check', after: 'make check', changed: false },
  CommitRange: { total: 1, missing: 0, files_total: 1 },
  CommitStatus: { state: 'passed' },
  CreatedDependency: { ...dependency, marketplace_state: 'private' },
  CreatedNotification: { signing_secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' },
  Delivery: { state: 'delivered' },
  DependencyFile: { path: 'lib/libz.so.1', mode: '0755', size: 108_184 },
  Dependency: dependency,
  DependencyChange: { name: 'zlib', before: OLD_ARTIFACT, after: ARTIFACT, change: 'compiled' },
  DeployItem: { state: 'enqueued' },
  DeployStrategy: { name: 'Production' },
  DeployStrategyItem: { name: 'Production' },
  DifferentLine: { line: 120, text: 'footer.c:7: undefined reference to inflate' },
  DifferentTest: { name: 'test_year' },
  DurationChange: { before: 84_000, after: 12_000, changed: true },
  Firing: { event: 'push', outcome: 'requested', planned_at: null, ref: 'refs/heads/main' },
  ExitCodeChange: { before: 0, after: 2, changed: true },
  EnvironmentVariable: { name: 'API_URL' },
  FoundLine: { build_state: 'failed', line: 1204, offset: 73_112, text: 'Error: connection refused' },
  SeenBuild: { build_state: 'failed' },
  SeenLine: { line: 1204, text: 'Error: connection refused', other_builds: 12 },
  GitOptions: { repository_url: 'git@git.example.org:team/live.git' },
  Identity: { email: 'ada@example.org' },
  ImageChange: { before: 'host', before_id: HOST, after: 'host', after_id: HOST, changed: false },
  InvitedCollaborator: { sign_in_url: `${SERVER}/ui/welcome?link=Vn3…` },
  LimitChange: { name: 'MEMORY', before: 2_147_483_648, after: 2_147_483_648, changed: false },
  LogTimes: {
    times: [
      [512, 1_800_000_000_000],
      [2_048, 1_800_000_001_000],
    ],
  },
  LogChange: { cut_because: null },
  RangeCommit: { subject: 'Fix the footer' },
  RelatedDependency: { name: 'openssl' },
  Suite: { name: 'Unit tests' },
  SuiteDependency: dependency,
  PushOptions: push,
  TestsChange: { new_failures_total: 1, fixed: [], fixed_total: 0 },
  Test: { name: 'test_year', runs: 50 },
  Trigger: { name: 'Push', trigger_type: 'push', enabled: true, state: 'ok', options: push },
  VariablesChange: { added: [], removed: [], changed: [] },
  TriggerWithSecret: {
    name: 'Push',
    trigger_type: 'push',
    enabled: true,
    state: 'new',
    options: push,
    url: `${SERVER}/hooks/${FIRST_ID}`,
  },
  UploadedDependency: { ...dependency, marketplace_state: 'enqueued_for_compile' },
};

/** A value that matches the schema. Optional fields appear only if `byRecord` has them. */
export function exampleOf(schema: JsonSchema, name = '', recordName = ''): unknown {
  const own = fieldsOf(recordName);
  if (name in own) return own[name];
  if (schema.properties)
    return Object.fromEntries(
      Object.entries(schema.properties as Record<string, JsonSchema>)
        .filter(([key]) => (schema.required as string[]).includes(key) || key in fieldsOf(schema.title))
        .map(([key, one]) => [key, exampleOf(one, key, schema.title as string)]),
    );
  const id = exampleId(name.replace(/_(str|ref)$/, ''));
  if (id !== undefined) return [schema.type].flat().includes('integer') ? wireId(id) : id.toString();
  const values = schema.enum as readonly unknown[] | undefined;
  if (name in byName && values?.includes(byName[name]) !== false) return byName[name];
  if (schema.items) return [exampleOf(schema.items as JsonSchema)];
  if (values) return values[0];
  if ('const' in schema) return schema.const;
  return schema.format === 'date-time' ? TIME : (schema.examples as unknown[] | undefined)?.[0];
}

const fieldsOf = (recordName: unknown) => byRecord[String(recordName)] ?? {};
const exampleId = (name: string) => (ids.includes(name) ? FIRST_ID + BigInt(ids.indexOf(name)) : undefined);
