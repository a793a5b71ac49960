// Values that each field refuses, with the error code, and values that it accepts.
const P = '/projects/:project_id';

/** The required fields; all other fields of a form are in `rules`. */
export const required: Record<string, string[]> = {
  'POST /projects': ['name', 'repository_url'],
  [`PUT ${P}`]: ['name', 'repository_url'],
  [`POST ${P}/collaborators`]: ['email'],
  [`POST ${P}/build_requests`]: ['commit_ref'],
  [`POST ${P}/suites`]: ['name', 'command'],
  [`PUT ${P}/suites/:suite_id`]: ['name', 'command'],
  [`POST ${P}/suites/:suite_id/rules`]: ['subject', 'operator', 'value'],
  [`POST ${P}/suites/:suite_id/dependencies`]: ['dependency_id'],
  [`POST ${P}/suites/:suite_id/environment_variables`]: ['name', 'content'],
  [`PUT ${P}/suites/:suite_id/environment_variables/:variable_id`]: ['name', 'content'],
  [`POST ${P}/deploy_strategies`]: [
    'name',
    'strategy_type',
    'options[repository_url]',
    'options[local_branch]',
    'options[remote_branch]',
  ],
  [`PUT ${P}/deploy_strategies/:deploy_strategy_id`]: [
    'name',
    'strategy_type',
    'options[repository_url]',
    'options[local_branch]',
    'options[remote_branch]',
  ],
  [`POST ${P}/deploys`]: ['deploy_strategy_id', 'commit_id'],
  [`POST ${P}/notifications`]: ['notifiable_type', 'name', 'options[url]'],
  [`POST ${P}/triggers`]: ['name', 'trigger_type'],
  [`POST ${P}/triggers/:trigger_id/fire`]: [],
  [`PUT ${P}/triggers/:trigger_id`]: ['name'],
  [`PUT ${P}/notifications/:notification_id`]: ['options[url]'],
  'POST /dependencies': ['name', 'command'],
  'PUT /dependencies/:dependency_id': ['name', 'command'],
  'POST /dependencies/:dependency_id/compile': [],
};
/** Refused values by error code, and accepted values. */
export type Rule = { field: string; bad?: Record<string, string[]>; good?: string[] };
const urls = {
  good: ['git@host:a.git', 'deploy-1@git.example.org:~team/a+b/c_d.git', 'a@b:x/y.z.git'],
  bad: [
    'https://git.example.org/a.git',
    'ssh://git@host/a.git',
    'git@host:a',
    'git@host:-a.git',
    '-git@host:a.git',
    'git@-oProxyCommand=x:a.git',
    'git@-host:a.git',
    'git@host:../a.git',
    'git@host:a..b.git',
    'git@host:a b.git',
    'git@host:a\nb.git',
    'git@host:a;b.git',
    'git@a@host:b.git',
    'host:a.git',
    'git@:a.git',
    'git@host:.git\u0000',
    `git@host:${'a'.repeat(1025)}.git`,
    'file:///etc/passwd.git',
    '/etc/passwd.git',
    'git@host:$(id).git',
  ],
};
const branches = {
  good: ['main', 'feature/x-1', 'v1.0', 'a'.repeat(200), 'übung'],
  bad: [
    '-x',
    '--upload-pack=id',
    '+main',
    'a:b',
    'a//b',
    '/a',
    'a/',
    'HEAD',
    '@',
    'refs/heads/main',
    'a..b',
    'a~1',
    'a^',
    'a@{1}',
    'a b',
    'a.lock',
    '.a',
    'a.',
    'a\\b',
    'a*',
    'a\u007f',
    'a'.repeat(201),
  ],
};
export const goodImages = ['debian:12', `a/b@sha256:${'a'.repeat(64)}`];
const lines = { invalid_format: ['a\u0000b', 'a\nb', 'x'.repeat(256)] };

export const rules: [string, Rule[]][] = [
  [
    'POST /projects',
    [
      { field: 'name', bad: lines, good: ['Ünïcode ✓', '<b>&amp;"\'', '{{7*7}}', '__proto__'] },
      { field: 'repository_url', bad: { invalid_format: urls.bad }, good: urls.good },
      { field: 'description', bad: { invalid_format: ['a\u0000'] }, good: ['', 'a\nb', ' '] },
      { field: 'badge', bad: { invalid_format: ['yes', '2', 'TRUE'] }, good: ['true', '0', ''] },
      { field: 'cancel_superseded', bad: { invalid_format: ['on'] }, good: ['false', '1'] },
      { field: 'local_variables', bad: { invalid_format: ['on'] }, good: ['false', '1'] },
      {
        field: 'submodules',
        bad: { invalid_format: ['true', 'ON', 'on '] },
        good: ['off', 'on', 'recursive', ''],
      },
    ],
  ],
  [
    `POST ${P}/collaborators`,
    [
      {
        field: 'email',
        bad: {
          invalid_format: ['nobody', 'a@', '@b.org', 'a b@c.org', 'a:b@c.org', 'a@b@c.org', 'a\n@b.org'],
          already_exists: ['owner@example.org', 'OWNER@example.org', 'collaborator@example.org'],
        },
        good: ['a+b@example.org', 'ü@example.org'],
      },
    ],
  ],
  [
    `POST ${P}/build_requests`,
    [
      {
        field: 'commit_ref',
        bad: { invalid_format: branches.bad },
        good: [...branches.good, 'abcdef0', 'ABCDEF0123456789ABCDEF0123456789ABCDEF01'],
      },
    ],
  ],
  [
    `POST ${P}/suites`,
    [
      { field: 'name', bad: lines },
      { field: 'command', bad: { invalid_format: ['a\u0000'] }, good: ['a\nb', 'rm -rf / # "\'$(`'] },
      {
        field: 'image',
        bad: { invalid_format: ['-v', 'a b', 'UPPER', '../x'] },
        good: goodImages,
      },
    ],
  ],
  [
    `POST ${P}/suites/:suite_id/rules`,
    [
      {
        field: 'subject',
        bad: { invalid_format: ['commit', 'commit.date', 'commit.Message', 'branch', 'constructor'] },
        good: [
          'commit.message',
          'commit.branches',
          'commit.tags',
          'commit.files',
          'commit.ref',
          'commit.author_name',
          'commit.author_email',
          'commit.committer_name',
          'commit.committer_email',
        ],
      },
      {
        field: 'operator',
        bad: { invalid_format: ['is', 'regex', 'Contains', 'toString'] },
        good: [
          'contains',
          'does_not_contain',
          'equals',
          'does_not_equal',
          'starts_with',
          'ends_with',
          'matches',
          'does_not_match',
        ],
      },
    ],
  ],
  [
    `POST ${P}/suites/:suite_id/dependencies`,
    [{ field: 'dependency_id', bad: { invalid_format: ['abc', '-1', '1.5', '9223372036854775808', '1 2'] } }],
  ],
  [
    `POST ${P}/suites/:suite_id/environment_variables`,
    [
      {
        field: 'name',
        bad: {
          invalid_format: ['1A', 'A-B', 'A B', 'A=B', 'Ä', 'A\n'],
          is_reserved: [
            'CI',
            'HOME',
            'PATH',
            'ASSAY',
            'ASSAY_TOKEN',
            'ASSAY_',
            'LD_LIBRARY_PATH',
            'PKG_CONFIG_PATH',
          ],
        },
        good: ['_', 'a1', 'ASSAYER', 'ci'],
      },
      {
        field: 'content',
        bad: { invalid_format: ['a\u0000b', 'x'.repeat(131_073), `${'ü'.repeat(65_536)}x`] },
        good: ['', ' ', 'a\nb', 'x'.repeat(131_072), 'ü'.repeat(65_536)],
      },
    ],
  ],
  [
    `POST ${P}/deploy_strategies`,
    [
      { field: 'name', bad: lines },
      { field: 'strategy_type', bad: { invalid_format: ['svn', 'GIT', 'git '] } },
      { field: 'options[repository_url]', bad: { invalid_format: urls.bad }, good: urls.good },
      { field: 'options[local_branch]', bad: { invalid_format: branches.bad }, good: branches.good },
      { field: 'options[remote_branch]', bad: { invalid_format: branches.bad }, good: branches.good },
      { field: 'options[automatic]', bad: { invalid_format: ['maybe'] }, good: ['true'] },
    ],
  ],
  [
    `POST ${P}/deploys`,
    [
      { field: 'deploy_strategy_id', bad: { invalid_format: ['x', '-1'] } },
      { field: 'commit_id', bad: { invalid_format: ['main', '0x1'] } },
    ],
  ],
  [
    `POST ${P}/notifications`,
    [
      {
        field: 'notifiable_type',
        bad: { invalid_format: ['deploy', 'Build', 'toString'] },
        good: ['dependency'],
      },
      { field: 'name', bad: { invalid_format: ['email', 'Webhook'] } },
      {
        field: 'options[url]',
        bad: {
          invalid_format: [
            'ftp://example.org/',
            'javascript:alert(1)',
            'hooks.example.org',
            '//example.org/',
            'http://',
            'http://127.0.0.1/',
            'http://127.1/',
            'http://0x7f000001/',
            'http://2130706433/',
            'http://0177.0.0.1/',
            'http://[::1]/',
            'http://[::ffff:127.0.0.1]/',
            'http://0.0.0.0/',
            'http://169.254.169.254/latest/meta-data',
            'http://224.0.0.1/',
            'https://a\nb/',
          ],
        },
        good: ['http://10.0.0.1/x', 'https://192.168.1.1:8443/', 'https://example.org/?a=b'],
      },
    ],
  ],
  [
    `POST ${P}/triggers`,
    [
      { field: 'name', bad: lines },
      { field: 'trigger_type', bad: { invalid_format: ['Push', 'cron', 'toString'] }, good: ['poll'] },
      {
        field: 'options[branches]',
        bad: { invalid_format: ['a\u0000', Array(101).fill('a').join(' '), 'x'.repeat(4097)] },
        good: ['*', 'main release/*', 'a?[bc]'],
      },
      { field: 'options[tags]', bad: { invalid_format: ['a\nb'] }, good: ['v*', ''] },
      { field: 'options[pull_requests]', bad: { invalid_format: ['on'] }, good: ['true'] },
      { field: 'options[pull_request_variables]', bad: { invalid_format: ['2'] }, good: ['true'] },
      {
        field: 'options[reconcile]',
        bad: { invalid_format: ['-1', '1.5', 'x', '2592001'] },
        good: ['0', '3600'],
      },
      // Options of other types.
      { field: 'options[interval]', bad: { invalid_format: ['120', '29'] } },
      { field: 'options[build_first]', bad: { invalid_format: ['true', 'x'] } },
      { field: 'options[cron]', bad: { invalid_format: ['0 3 * * *'] } },
      { field: 'options[time_zone]', bad: { invalid_format: ['UTC', 'Nowhere/City'] } },
      { field: 'options[branch]', bad: { invalid_format: ['main', '-x'] } },
      { field: 'options[only_new]', bad: { invalid_format: ['true'] } },
      { field: 'options[late]', bad: { invalid_format: ['60'] } },
    ],
  ],
  [
    'POST /dependencies',
    [
      { field: 'name', bad: lines },
      { field: 'command', bad: { invalid_format: ['make install', './configure --prefix=/opt/x'] } },
      {
        field: 'prefix',
        bad: {
          invalid_format: [
            'srv/x',
            '/srv//x',
            '/srv/x/',
            '/srv/../etc',
            '/srv/./x',
            '/a:b',
            '/a,b',
            '/a b',
            '/a$b',
            '/a\nb',
          ],
          is_reserved: [
            '/',
            '/bin',
            '/dev/x',
            '/etc',
            '/home/me',
            '/lib',
            '/lib64/x',
            '/proc',
            '/root',
            '/run',
            '/sbin',
            '/sys',
            '/tmp/x',
            '/usr/local',
            '/var/lib',
            '/srv',
            '/srv/project',
            '/srv/project/x',
            '/srv/cache',
          ],
        },
      },
      {
        field: 'source',
        bad: { invalid_format: ['/etc', '..', 'a/../b', 'a\u0000'] },
        good: ['', 'zlib-1.3/src'],
      },
      { field: 'launch_command', bad: { invalid_format: ['a\u0000'] }, good: ['redis-server', ''] },
      { field: 'related_dependencies[]', bad: { invalid_format: ['abc', '-1'] }, good: [''] },
    ],
  ],
];
