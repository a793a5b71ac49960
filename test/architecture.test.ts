// Enforces the architecture: imports point down, each outside package is imported in one place, one file writes states.
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { test } from 'node:test';

const source = join(import.meta.dirname, '../src');
const files = globSync('**/*.ts', { cwd: source, exclude: path => path.startsWith('web/client') })
  .filter(path => !path.startsWith('web/client/'))
  .toSorted();
const textOf = new Map(files.map(path => [path, readFileSync(join(source, path), 'utf8')]));

type Import = { from: string; target: string; typeOnly: boolean };

function importsOf(path: string): Import[] {
  const text = textOf.get(path) as string;
  const found: Import[] = [];
  for (const match of text.matchAll(/^(?:import|export)(\s+type)?\s([^;]*?)from '([^']+)'/gms)) {
    const [, type, names = '', target = ''] = match;
    const named = /^\{(.*)\}\s*$/s.exec(names.trim());
    const typeOnly =
      type !== undefined ||
      (named !== null &&
        (named[1] as string)
          .split(',')
          .filter(name => name.trim() !== '')
          .every(name => name.trim().startsWith('type ')));
    found.push({ from: path, target, typeOnly });
  }
  for (const match of text.matchAll(/^import '([^']+)'/gm))
    found.push({ from: path, target: match[1] as string, typeOnly: false });
  for (const match of text.matchAll(/\bimport\('([^']+)'\)/g))
    found.push({ from: path, target: match[1] as string, typeOnly: false });
  return found;
}

const imports = files.flatMap(importsOf);
const isRelative = ({ target }: Import) => target.startsWith('.');
const resolved = ({ from, target }: Import) => relative(source, join(source, dirname(from), target));

/** The layer of a file: its folder, or its own name for files at the top. */
const layerOf = (path: string) => (path.includes('/') ? (path.split('/')[0] as string) : path);

/** What each layer may import. */
const layers: Record<string, readonly string[]> = {
  domain: ['domain'],
  contract: ['contract', 'domain'],
  command: ['command', 'domain'],
  client: ['client', 'command', 'contract', 'domain', 'version.ts'],
  'live.ts': [],
  'log.ts': [],
  'asset.ts': [],
  'content-hash.ts': [],
  'fsync.ts': [],
  'thread-pool.ts': [],
  'version.ts': [],
  'config.ts': ['domain', 'command'],
  store: ['store', 'contract', 'domain', 'asset.ts', 'content-hash.ts', 'fsync.ts', 'version.ts'],
  engine: ['engine', 'domain', 'asset.ts', 'content-hash.ts', 'fsync.ts'],
  work: ['work', 'engine', 'live.ts', 'log.ts', 'config.ts', 'version.ts', 'store', 'contract', 'domain'],
  api: ['api', 'live.ts', 'log.ts', 'asset.ts', 'store', 'contract', 'domain'],
  web: [
    'web',
    'api',
    'live.ts',
    'log.ts',
    'config.ts',
    'store',
    'contract',
    'domain',
    'asset.ts',
    'version.ts',
  ],
};
/** The top layer: it may import everything, and nothing else imports it. */
const top = ['main.ts', 'load-commands.ts', 'cli.ts', 'cli', 'demo', 'app.ts'];

test('the files of src are found, and their imports are read', () => {
  assert.ok(files.length > 80);
  assert.ok(imports.length > 300);
  assert.ok(imports.some(one => one.from === 'store/database/db.ts' && one.target === 'better-sqlite3'));
});

test('every folder and every file at the top has a layer', () => {
  for (const path of files) assert.ok(layerOf(path) in layers || top.includes(layerOf(path)), path);
});

test('imports point down only', () => {
  const upward = imports
    .filter(isRelative)
    .filter(one => !resolved(one).startsWith('..'))
    .filter(one => {
      const floor = layerOf(one.from);
      return !top.includes(floor) && !layers[floor]?.includes(layerOf(resolved(one)));
    })
    .map(one => `${one.from} imports ${resolved(one)}`);
  assert.deepEqual(upward, []);
});

test('nothing outside src is imported except for the version', () => {
  const outside = imports.filter(isRelative).filter(one => resolved(one).startsWith('..'));
  assert.deepEqual(
    outside.map(one => `${one.from} ${one.target}`),
    ['version.ts ../package.json'],
  );
});

test('every import names an existing file', () => {
  for (const one of imports.filter(isRelative)) {
    if (one.target.endsWith('.json')) continue;
    assert.ok(textOf.has(resolved(one)), `${one.from} imports ${one.target}`);
  }
});

test('there is no import cycle, not even of types', () => {
  const edges = new Map(
    files.map(path => [
      path,
      imports
        .filter(one => one.from === path && isRelative(one))
        .map(resolved)
        .filter(target => textOf.has(target)),
    ]),
  );
  const done = new Set<string>();
  const circles: string[] = [];
  const visit = (path: string, way: string[]) => {
    if (way.includes(path)) {
      circles.push([...way.slice(way.indexOf(path)), path].join(' -> '));
      return;
    }
    if (done.has(path)) return;
    for (const target of edges.get(path) ?? []) visit(target, [...way, path]);
    done.add(path);
  };
  for (const path of files) visit(path, []);
  assert.deepEqual(circles, []);
});

test('the domain uses no files, networks, processes or packages', () => {
  const pure = ['node:crypto', 'node:util', 'node:net'];
  const outside = imports
    .filter(one => one.from.startsWith('domain/') && !isRelative(one) && !pure.includes(one.target))
    .map(one => `${one.from} imports ${one.target}`);
  assert.deepEqual(outside, []);
  // Of node:net only the functions that parse addresses.
  for (const path of files.filter(path => path.startsWith('domain/'))) {
    const [, names] = /import \{([^}]*)\} from 'node:net'/.exec(textOf.get(path) as string) ?? [];
    for (const name of names?.split(',') ?? [])
      assert.match(name.trim(), /^(isIP(v4|v6)?|BlockList|SocketAddress|)$/);
  }
});

/** Maps a package to the files that may import more than its types. */
const doors: Record<string, RegExp> = {
  'better-sqlite3': /^store\/database\/db\.ts$/,
  'drizzle-orm': /^store\//,
  dockerode: /^engine\/docker\/client\.ts$/,
  'simple-git': /^engine\/git\/git\.ts$/,
  '@peculiar/x509': /^engine\/certificate\.ts$/,
  'tar-stream': /^(engine\/|store\/backup\/|demo\/)/,
  saxes: /^engine\/junit-xml\.ts$/,
  yauzl: /^engine\/archive\/zip-reader\.ts$/,
  ssh2: /^demo\/git-host\.ts$/,
  '@hono/node-server': /^api\/http\/(server|stream)\.ts$/,
  undici: /^api\/http\/fetch-classes\.ts$/,
  marked: /^web\/manual\/(manual|html)\.ts$/,
  hono: /^(api\/router|api\/oauth|web\/.*)\.ts$/,
};

test('each outside package is imported only in its place, and no other package is used', () => {
  const astray = imports
    .filter(one => !isRelative(one) && !one.target.startsWith('node:') && !one.typeOnly)
    .filter(one => {
      const name = one.target
        .split('/')
        .slice(0, one.target.startsWith('@') ? 2 : 1)
        .join('/');
      return !doors[name]?.test(one.from);
    })
    .map(one => `${one.from} imports ${one.target}`);
  assert.deepEqual(astray, []);
});

test('each listed package is really imported', () => {
  for (const name of Object.keys(doors))
    assert.ok(
      imports.some(one => one.target === name || one.target.startsWith(`${name}/`)),
      name,
    );
});

test('Docker is reached through the contract of the engine and nowhere else', () => {
  const open = ['docker-engine', 'report', 'skeleton'].map(name => `engine/docker/${name}.ts`);
  // A swarm is made of Docker engines. The demo sets up such engines itself.
  const inside = /^(engine\/(docker|swarm)\/|demo\/(machine|swarm-machines)\.ts$)/;
  const around = imports
    .filter(isRelative)
    .filter(one => !inside.test(one.from) && resolved(one).startsWith('engine/docker/'))
    .filter(one => !open.includes(resolved(one)))
    .map(one => `${one.from} imports ${resolved(one)}`);
  assert.deepEqual(around, []);
  const creators = files.filter(path => textOf.get(path)?.includes('docker.createContainer('));
  assert.deepEqual(creators, ['engine/docker/create-container.ts']);
});

test('state columns are updated only in store/transition.ts', () => {
  const writers: string[] = [];
  for (const [path, text] of textOf) {
    // From `.update(table)` to the end of its `.set(…)`, found by counting brackets.
    for (const match of text.matchAll(
      /\.update\((builds|buildRequests|commits|projects|dependencies|deploys)\)\s*\.set\(/g,
    )) {
      let depth = 1;
      let at = match.index + match[0].length;
      const start = at;
      for (; depth > 0 && at < text.length; at += 1)
        depth += text[at] === '(' ? 1 : text[at] === ')' ? -1 : 0;
      const set = text.slice(start, at - 1);
      if (/\b(buildState|compileState|state)\b\s*[:,}]/.test(set)) writers.push(path);
    }
    for (const match of text.matchAll(
      /UPDATE\s+\w+\s+SET\s[^;`'"]*\b(build_state|compile_state|state)\s*=/gi,
    ))
      if (!/UPDATE\s+deliveries/i.test(match[0])) writers.push(path);
    if (/= updateIn\(/.test(text)) writers.push(path);
  }
  assert.deepEqual([...new Set(writers)], ['store/transition.ts']);
});

test('SQL is written only in the store', () => {
  const statement = /[`'"]\s*(SELECT\s.*\sFROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|PRAGMA)\s/is;
  const astray = [...textOf].filter(([path, text]) => !path.startsWith('store/') && statement.test(text));
  assert.deepEqual(
    astray.map(([path]) => path),
    [],
  );
});

test('every file begins with a comment about its responsibility', () => {
  const silent = [...textOf].filter(([, text]) => !/^\/\/ \S.{20,}\n/.test(text));
  assert.deepEqual(
    silent.map(([path]) => path),
    [],
  );
});

test('no file is too long', () => {
  const tables = new Set(['store/database/schema.ts', 'store/database/migrations.ts']);
  const long = [...textOf]
    .map(([path, text]) => [path, text.split('\n').length] as const)
    .filter(([path, lines]) => lines > 450 && !tables.has(path));
  assert.deepEqual(long, []);
});

test('no folder or file has a meaningless name', () => {
  const empty =
    /(^|[/-])(utils?|helpers?|types|services?|managers?|common|misc|controllers|models)(\.ts|\/|$)/;
  assert.deepEqual(
    files.filter(path => empty.test(path)),
    [],
  );
});

test('there are no TODO comments and no default exports', () => {
  for (const [path, text] of textOf) {
    assert.doesNotMatch(text, /\b(TODO|FIXME|XXX|HACK)\b/, path);
    assert.doesNotMatch(text, /^export default /m, path);
  }
});
