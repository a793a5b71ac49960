// Options, other protocols, refspecs and expressions in every field of the API that takes a repository URL or a ref:
// each is refused on that field, and nothing is written.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { fresh, projectForm, strategyForm } from '../api/contract.ts';
import type { Planted } from '../support/app.ts';
import { errors, type Fields } from '../support/client.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';

let app: ServedApp;
let planted: Planted;
before(async () => {
  app = await serveApp();
  planted = app.plant();
});
after(() => app.close());

const P = () => `/projects/${planted.project_id}`;
const strategy = () => `${P()}/deploy_strategies/${planted.deploy_strategy_id}`;

type Place = { method: string; path: () => string; field: string; others: () => Fields };
const addresses: Place[] = [
  { method: 'POST', path: () => '/projects', field: 'repository_url', others: projectForm },
  { method: 'PUT', path: P, field: 'repository_url', others: () => ({}) },
  {
    method: 'POST',
    path: () => `${P()}/deploy_strategies`,
    field: 'options[repository_url]',
    others: strategyForm,
  },
  { method: 'PUT', path: strategy, field: 'options[repository_url]', others: () => ({}) },
];
const refs: Place[] = [
  { method: 'POST', path: () => `${P()}/build_requests`, field: 'commit_ref', others: () => ({}) },
  ...['options[local_branch]', 'options[remote_branch]'].flatMap((field): Place[] => [
    { method: 'POST', path: () => `${P()}/deploy_strategies`, field, others: strategyForm },
    { method: 'PUT', path: strategy, field, others: () => ({}) },
  ]),
];

const hostileAddresses = {
  'an option of ssh as user': '-oProxyCommand=touch$IFS@host:path.git',
  'an option of ssh as host': 'git@-oProxyCommand=touch:path.git',
  'a short option as host': 'git@-F/etc/passwd:path.git',
  'an option as path': 'git@host:--upload-pack=touch.git',
  'an option as path, after another kind of slash': 'git@host:-u.git',
  'an option and nothing else': '--upload-pack=touch /tmp/x',
  'a command through the ext protocol': 'ext::sh -c touch% /tmp/x.git',
  'a remote helper of git': 'git@ext::sh:x.git',
  'a file': 'file:///etc/passwd.git',
  'a path of the host': '/srv/repositories/other.git',
  'a relative path': '../other.git',
  http: 'http://127.0.0.1/x.git',
  'https with a password': 'https://user:secret@host/x.git',
  'ssh as a URL': 'ssh://git@host/x.git',
  'ssh as a URL with an option as host': 'ssh://-oProxyCommand=touch/x.git',
  'the git protocol': 'git://host/x.git',
  'a descriptor': 'fd::17/x.git',
  'a bundle': 'git@host:x.bundle',
  'two at signs, the first an option': '-oX@git@host:x.git',
  'a port': 'git@host:22:x.git',
  'an IPv6 address in brackets': 'git@[::1]:x.git',
  'a command after a semicolon': 'git@host:x;touch y.git',
  'a command in backquotes': 'git@host:`touch y`.git',
  'a command in parentheses': 'git@host:$(touch y).git',
  'a pipe': 'git@host:x|sh.git',
  'a quote that closes': "git@host:x'y.git",
  'a line break': 'git@host:x\n.git',
  'a line break at the end': 'git@host:x.git\n',
  'a carriage return': 'git@host:x\r.git',
  'an escape': 'git@host:x\u001b[2J.git',
  'a tabulator': 'git@host:x\ty.git',
  'a space before': ' git@host:x.git',
  'non-ASCII white space': 'git@host:x\u00a0y.git',
  homoglyphs: 'git@hоst:x.git',
  'a text direction override': 'git@host:x\u202etig.git',
  'a climbing path': 'git@host:../../etc/x.git',
  'a path that climbs in the middle': 'git@host:a/../../x.git',
  'a home directory through a variable': 'git@host:$HOME/x.git',
  'a glob': 'git@host:*.git',
  'a percent sign, which ssh expands': 'git@%h:x.git',
  'no user': 'host:x.git',
  'no path': 'git@host:.git',
  'a refspec behind': 'git@host:x.git +refs/heads/*:refs/heads/*',
  'longer than any host accepts': `git@host:${'a'.repeat(1_100)}.git`,
} as const;

const hostileRefs = {
  'an option': '-x',
  'a long option': '--upload-pack=touch',
  'an option that writes a file': '--output=/tmp/x',
  'an exec option': '--exec=touch',
  'a force mark': '+main',
  'a refspec': 'main:refs/heads/other',
  'a refspec that deletes': ':main',
  'a forced refspec': '+refs/heads/*:refs/heads/*',
  'a negative refspec': '^main',
  'a full ref': 'refs/heads/main',
  'a notes ref': 'refs/notes/commits',
  'the head': 'HEAD',
  'HEAD as @': '@',
  'a parent': 'main~1',
  'a parent with a caret': 'main^',
  'a peeled tag': 'v1^{}',
  'a search in messages': ':/secret',
  'a search from a branch': 'main^{/secret}',
  'a path in a commit': 'main:secrets.txt',
  'an index entry': ':0:README.md',
  'a reflog entry': 'main@{1}',
  'an upstream': '@{upstream}',
  'a previous branch': '@{-1}',
  'the previous branch': '-',
  'a range': 'main..other',
  'a symmetric range': 'main...other',
  'a glob': 'feature/*',
  'a question mark': 'mai?',
  'a bracket': 'mai[n]',
  'a backslash': 'a\\b',
  'a space': 'main --force',
  'a tabulator': 'main\t--force',
  'a line break': 'main\nother',
  'a line break at the end': 'main\n',
  'an escape': '\u001b[31mmain',
  'a delete character': 'main\u007f',
  'a lock file': 'main.lock',
  'a lock file inside': 'a.lock/b',
  'a hidden part': '.hidden',
  'a hidden component': 'a/.git',
  'an empty component': 'a//b',
  'a slash before': '/main',
  'a slash behind': 'main/',
  'a dot behind': 'main.',
  'a climb': '../main',
  'a lone surrogate': '\ud800',
  'too many bytes': 'ä'.repeat(101),
} as const;

/** The same value in a form and in JSON: both must be read the same way. */
async function refusedAt(place: Place, value: string) {
  const before = app.changes();
  const fields = { ...place.others(), ...('name' in place.others() && { name: fresh('Attack') }) };
  const as = app.people.owner.as;
  const form = { ...fields, [place.field]: value };
  const expected = [403, errors(place.field, 'invalid_format')];
  if (value.isWellFormed()) {
    const answer = await app.client.call(place.method, place.path(), { as, form });
    assert.deepEqual([answer.status, answer.json], expected, `${place.method} ${place.path()}`);
  }
  const answer = await app.client.call(place.method, place.path(), { as, json: nested(form) });
  assert.deepEqual([answer.status, answer.json], expected, `${place.method} ${place.path()} as JSON`);
  assert.equal(app.changes(), before, 'something was written');
}

function nested(fields: Fields): Record<string, unknown> {
  const json: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    const inner = /^options\[(\w+)\]$/.exec(name)?.[1];
    if (inner) json.options = { ...(json.options as object), [inner]: value };
    else json[name] = value;
  }
  return json;
}

for (const [kind, places, hostile] of [
  ['address', addresses, hostileAddresses],
  ['ref', refs, hostileRefs],
] as const)
  for (const place of places) {
    const where = place.method === 'POST' ? 'created' : 'changed';
    attacks(`a hostile ${kind} in ${place.field}, ${where}`, hostile, value => refusedAt(place, value));
  }
