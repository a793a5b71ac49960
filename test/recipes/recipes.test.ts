// Every recipe of the cookbook with Debian's sources: the archive selects it, it compiles, and a suite uses it. This takes
// long, so it only runs with `scripts/test --recipes`.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { cookbook, guessDirectory, matchRecipe, type Recipe } from '../../src/domain/cookbook.ts';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import { type DebianSources, fetchSources } from '../support/debian-sources.ts';
import { type DependencyFixture, openDependencies, useIn } from '../work/dependencies/fixture.ts';

type Use = {
  /** Debian's name of the source package. */
  source: string;
  files?: Record<string, string>;
  /** Runs in a suite after the command that the recipe suggests. */
  command: string;
  log: RegExp;
};

const uses: Record<string, Use> = {
  zlib: {
    source: 'zlib',
    files: {
      'main.c':
        '#include <stdio.h>\n#include <zlib.h>\nint main(void) { return printf("zlib %s, %s\\n", zlibVersion(), ZLIB_VERSION) < 0; }\n',
    },
    command: 'cc main.c $(pkg-config --libs zlib) -o main && ldd main && ./main',
    log: /libz\.so\.1 => \/opt\/zlib\/lib\/libz\.so\.1 .*^zlib (1\.[\d.]+), \1/ms,
  },
  lua: {
    source: 'lua5.4',
    files: { 'sum.lua': 'print(_VERSION, 40 + 2)\n' },
    command: 'lua sum.lua && command -v lua',
    log: /^Lua 5\.4\t42\n\/opt\/lua\/bin\/lua$/m,
  },
  redis: {
    source: 'redis',
    command: 'redis-cli -u "$REDIS_URL" set greeting hello && redis-cli get greeting',
    log: /^PONG$.*^OK\nhello$/ms,
  },
  libevent: {
    source: 'libevent',
    files: {
      'main.c':
        '#include <event2/event.h>\n#include <stdio.h>\nint main(void) { return printf("%s\\n", event_get_version()) < 0; }\n',
    },
    command: 'cc main.c $(pkg-config --libs libevent) -o main && ldd main && ./main',
    log: /\/opt\/libevent\/lib\/libevent.*^2\.\d+\.\d+-stable$/ms,
  },
  pcre2: {
    source: 'pcre2',
    command: 'printf "one\\ntwo\\n" | pcre2grep "t(?=w)"',
    log: /^10\.\d+\ntwo$/m,
  },
  memcached: {
    source: 'memcached',
    files: {
      ask: 'exec 3<>/dev/tcp/127.0.0.1/11211\nprintf "set a 0 0 5\\r\\nhello\\r\\nget a\\r\\nquit\\r\\n" >&3\ncat <&3\n',
    },
    command: 'bash ask && ldd "$(command -v memcached)"',
    log: /^STORED\r\nVALUE a 0 5\r\nhello\r\n.*\/opt\/libevent\/lib\/libevent/ms,
  },
  nginx: {
    source: 'nginx',
    files: { 'page.html': '<p>served by nginx</p>\n' },
    command: 'curl -fsSi http://127.0.0.1:8080/page.html && nginx -V && ldd "$(command -v nginx)"',
    log: /^Content-Type: text\/html\r$.*^<p>served by nginx<\/p>$.*\/opt\/pcre2\/lib\/libpcre2-8/ms,
  },
  postgresql: {
    source: 'postgresql-15',
    command: `psql -c 'create extension pg_trgm' && createdb other && psql -Atd other -c "select 'answer ' || 6 * 7"`,
    log: /PostgreSQL 15.*^CREATE EXTENSION\nanswer 42$/ms,
  },
  jq: {
    source: 'jq',
    command: `echo '["one", "two"]' | jq -c 'map(select(test("^t")))'`,
    log: /^1\n\["two"\]$/m,
  },
  sqlite: {
    source: 'sqlite3',
    files: {
      'main.c':
        '#include <sqlite3.h>\n#include <stdio.h>\nint main(void) { return printf("SQLite %s\\n", sqlite3_libversion()) < 0; }\n',
    },
    command: 'cc main.c $(pkg-config --libs sqlite3) -o main && ldd main && ./main',
    log: /^3\.[\d.]+$.*\/opt\/sqlite\/lib\/libsqlite3.*^SQLite 3\.[\d.]+$/ms,
  },
  openssl: {
    source: 'openssl',
    files: {
      'main.c':
        '#include <openssl/crypto.h>\n#include <stdio.h>\nint main(void) { return printf("%s\\n", OpenSSL_version(OPENSSL_DIR)) < 0; }\n',
    },
    command:
      'cc main.c $(pkg-config --libs openssl) -o main && ./main && ldd "$(command -v curl)" | grep libssl',
    log: /^OpenSSL 3\..*^OPENSSLDIR: "\/opt\/openssl\/ssl"\n\s+libssl\.so\.3 => (?!\/opt)/ms,
  },
  python: {
    source: 'python3.11',
    command:
      'python -m venv venv && venv/bin/python -c "import sys, zlib, lzma, bz2, ctypes; print(sys.base_prefix)" && venv/bin/pip --version',
    log: /^3\.11\..*^\/opt\/python\npip \d/ms,
  },
  cmake: {
    source: 'cmake',
    files: {
      'CMakeLists.txt':
        'cmake_minimum_required(VERSION 3.20)\nproject(hello C)\nadd_executable(hello main.c)\nenable_testing()\nadd_test(NAME hello COMMAND hello)\n',
      'main.c': 'int main(void) { return 0; }\n',
    },
    command: 'cmake -B out && cmake --build out && ctest --test-dir out && command -v cmake',
    log: /100% tests passed.*^\/opt\/cmake\/bin\/cmake$/ms,
  },
};

const MINUTE_MS = 60_000;

describe('the recipes, with Debian’s sources', { timeout: 120 * MINUTE_MS }, () => {
  let appliance: Appliance;
  let fixture: DependencyFixture;
  let sources: DebianSources;
  before(async () => {
    sources = await fetchSources(...Object.values(uses).map(({ source }) => source));
    appliance = await startAppliance({ concurrency: 1 });
    fixture = openDependencies(appliance, 45 * MINUTE_MS);
  });
  after(() => appliance?.close());

  const seconds = new Map<string, number>();
  /** Each is compiled once, with what it needs. */
  const compiled = new Map<string, Promise<string>>();
  const compile = (recipe: Recipe): Promise<string> => {
    const known = compiled.get(recipe.id) ?? compileFirst(recipe);
    compiled.set(recipe.id, known);
    return known;
  };
  const compileFirst = async (recipe: Recipe) => {
    const { file, archive } = sources((uses[recipe.id] as Use).source);
    assert.equal(matchRecipe(file)?.id, recipe.id, file);
    const related: string[] = [];
    for (const library of recipe.libraries)
      related.push(await compile(cookbook.find(({ id }) => id === library.recipe) as Recipe));
    const startedAt = performance.now();
    const id = await fixture.compiled(archive, {
      name: recipe.title,
      source: guessDirectory(file, recipe),
      command: recipe.command,
      prefix: recipe.prefix,
      launch_command: recipe.launchCommand,
      environment: recipe.environment,
      library_path: String(recipe.libraryPath),
      'related_dependencies[]': related,
    });
    seconds.set(recipe.id, Math.round((performance.now() - startedAt) / 1000));
    return id;
  };

  for (const recipe of cookbook)
    test(`${recipe.title} compiles, and works in a suite`, { timeout: 45 * MINUTE_MS }, async context => {
      const { files = {}, command, log: expected } = uses[recipe.id] as Use;
      const id = await compile(recipe);
      context.diagnostic(`${recipe.title} was compiled in ${seconds.get(recipe.id)} s`);
      const project = await appliance.project(appliance.repository({ files }));
      const { build, log } = await useIn(project, [id], `${recipe.tryCommand} && ${command}`);
      assert.equal(build.build_state, 'passed', log);
      assert.match(log, expected);
    });
});
