// Recipes for well-known programs: how each is compiled from its source code, started, and used in a suite. The manual
// prints them, the page of a new dependency fills its form from them, and test/recipes compiles them.

export type Recipe = {
  /** Part of links. */
  id: string;
  /** The name of the program, and of the dependency. */
  title: string;
  description: string;
  /** The name of an archive up to the version; Debian's name for the source package is one of them. */
  archiveName: RegExp;
  /** The directory inside Debian's archive, up to the version. Other archives have the name of their directory. */
  debianDirectory: string;
  /** Archives and the directory inside each. The first is the one that people usually download. */
  archives: readonly (readonly [file: string, directory: string])[];
  prefix: string;
  command: string;
  launchCommand: string;
  /** Lines of NAME=value. */
  environment: string;
  /** False: its libraries would shadow those that programs of the image need. */
  libraryPath: boolean;
  /** Debian packages that the image of the compile needs besides a compiler and make. */
  packages: readonly string[];
  /** What the compile needs from either another recipe, as a related dependency, or a Debian package. */
  libraries: readonly { recipe: string; package: string }[];
  notes: string;
  /** A command for a suite that shows that it works. */
  tryCommand: string;
};

const defaults = {
  launchCommand: '',
  environment: '',
  libraryPath: true,
  packages: [],
  libraries: [],
  notes: '',
} as const;

export const cookbook: readonly Recipe[] = [
  {
    ...defaults,
    id: 'postgresql',
    title: 'PostgreSQL',
    description: 'Relational database, with an empty cluster for each build',
    archiveName: /^postgresql(-\d+)?$/,
    debianDirectory: 'postgresql-',
    archives: [
      ['postgresql-16.4.tar.bz2', 'postgresql-16.4'],
      ['postgresql-15_15.18.orig.tar.bz2', 'postgresql-15.18'],
    ],
    prefix: '/opt/postgresql',
    command: `./configure --prefix=/opt/postgresql --without-readline --without-zlib --without-icu &&
make -s &&
make -s install &&
make -s -C contrib install`,
    launchCommand: `initdb -D "$ASSAY_RUN/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$ASSAY_RUN/initdb.log" &&
pg_ctl -D "$ASSAY_RUN/data" -l "$ASSAY_RUN/server.log" -o "-F -h 127.0.0.1 -k '$ASSAY_RUN'" start >/dev/null ||
{ cat "$ASSAY_RUN"/*.log; exit 1; }`,
    environment: 'PGHOST=127.0.0.1\nPGUSER=postgres\nPGDATABASE=postgres',
    packages: ['bison', 'flex', 'perl'],
    notes:
      'The server listens on 127.0.0.1 and in `$ASSAY_RUN`, and trusts every user. `psql`, libpq and most drivers read the variables `PG…`. The data is not synced to disk, because it ends with the build. Bison, Flex and Perl are needed from version 17 on. Leave out `--without-zlib` and the others if the image has `zlib1g-dev`, `libreadline-dev` and `libicu-dev`.',
    tryCommand: `psql -c 'select version()'`,
  },
  {
    ...defaults,
    id: 'sqlite',
    title: 'SQLite',
    description: 'SQL database in a file: library and command line',
    archiveName: /^sqlite(3|-autoconf|-src)?$/,
    debianDirectory: 'sqlite3-',
    archives: [
      ['sqlite-autoconf-3460100.tar.gz', 'sqlite-autoconf-3460100'],
      ['sqlite-src-3460100.zip', 'sqlite-src-3460100'],
      ['sqlite3_3.40.1.orig.tar.xz', 'sqlite3-3.40.1'],
    ],
    prefix: '/opt/sqlite',
    command: `./configure --prefix=/opt/sqlite --disable-static $([ -d tool ] && echo --disable-tcl) &&
make &&
make install`,
    packages: ['tcl'],
    notes:
      'Only the complete source code (`sqlite-src` and Debian’s archive) needs Tcl; `sqlite-autoconf` does not.',
    tryCommand: `sqlite3 :memory: 'select sqlite_version()'`,
  },
  {
    ...defaults,
    id: 'redis',
    title: 'Redis',
    description: 'In-memory key-value store',
    archiveName: /^redis$/,
    debianDirectory: 'redis-',
    archives: [
      ['redis-7.2.5.tar.gz', 'redis-7.2.5'],
      ['redis_7.0.15.orig.tar.gz', 'redis-7.0.15'],
    ],
    prefix: '/opt/redis',
    command: 'make MALLOC=libc PREFIX=/opt/redis install',
    launchCommand: `redis-server --bind 127.0.0.1 --dir "$ASSAY_RUN" --logfile redis.log --save '' --daemonize yes &&
until redis-cli ping >/dev/null; do sleep 0.1; done`,
    environment: 'REDIS_URL=redis://127.0.0.1:6379',
    notes: 'The store is empty at the beginning of each build and is not saved.',
    tryCommand: 'redis-cli ping',
  },
  {
    ...defaults,
    id: 'memcached',
    title: 'memcached',
    description: 'In-memory cache',
    archiveName: /^memcached$/,
    debianDirectory: 'memcached-',
    archives: [
      ['memcached-1.6.29.tar.gz', 'memcached-1.6.29'],
      ['memcached_1.6.18.orig.tar.xz', 'memcached-1.6.18'],
    ],
    prefix: '/opt/memcached',
    command: `./configure --prefix=/opt/memcached --disable-docs &&
make &&
make install &&
install scripts/memcached-tool /opt/memcached/bin`,
    launchCommand: `memcached -d -l 127.0.0.1 &&
until memcached-tool 127.0.0.1:11211 stats >/dev/null 2>&1; do sleep 0.1; done`,
    environment: 'MEMCACHED_SERVERS=127.0.0.1:11211',
    packages: ['perl'],
    libraries: [{ recipe: 'libevent', package: 'libevent-dev' }],
    notes: '`memcached-tool` shows what the cache holds. It is a Perl program.',
    tryCommand: 'memcached-tool 127.0.0.1:11211 stats',
  },
  {
    ...defaults,
    id: 'nginx',
    title: 'nginx',
    description: 'Web server and reverse proxy',
    archiveName: /^nginx$/,
    debianDirectory: 'nginx-',
    archives: [
      ['nginx-1.26.2.tar.gz', 'nginx-1.26.2'],
      ['nginx_1.22.1.orig.tar.gz', 'nginx-1.22.1'],
    ],
    prefix: '/opt/nginx',
    command: `./configure --prefix=/opt/nginx --with-http_ssl_module --with-http_v2_module &&
make &&
make install`,
    launchCommand: `mkdir -p "$ASSAY_RUN/logs" &&
cat >"$ASSAY_RUN/nginx.conf" <<'END' &&
events {}
http {
  include /opt/nginx/conf/mime.types;
  server {
    listen 127.0.0.1:8080;
    root /srv/project;
    autoindex on;
  }
}
END
nginx -p "$ASSAY_RUN" -c nginx.conf`,
    packages: ['libssl-dev'],
    libraries: [
      { recipe: 'pcre2', package: 'libpcre2-dev' },
      { recipe: 'zlib', package: 'zlib1g-dev' },
    ],
    notes:
      'It serves the checkout of the project on port 8080. Change the configuration in the launch command, or leave the launch command empty and start `nginx -p DIRECTORY -c FILE` in the suite, with a directory that has a writable `logs`.',
    tryCommand: 'curl -fsS http://127.0.0.1:8080/',
  },
  {
    ...defaults,
    id: 'python',
    title: 'Python',
    description: 'Interpreter with its standard library and pip',
    archiveName: /^c?python(3\.\d+)?$/i,
    debianDirectory: 'Python-',
    archives: [
      ['Python-3.12.5.tar.xz', 'Python-3.12.5'],
      ['Python-3.12.5.tgz', 'Python-3.12.5'],
      ['cpython-3.12.5.tar.gz', 'cpython-3.12.5'],
      ['python3.11_3.11.2.orig.tar.gz', 'Python-3.11.2'],
    ],
    prefix: '/opt/python',
    command: `./configure --prefix=/opt/python --with-ensurepip=install &&
make &&
make install &&
ln -sf python3 /opt/python/bin/python`,
    packages: ['libssl-dev', 'zlib1g-dev', 'libffi-dev', 'libbz2-dev', 'liblzma-dev', 'libsqlite3-dev'],
    notes:
      'The prefix is read-only in suites. Install packages into a virtual environment: `python -m venv venv && venv/bin/pip install …`. A module whose `-dev` package is missing is left out. Add `--enable-optimizations` for a faster interpreter and a compile that takes several times as long.',
    tryCommand: 'python -c "import ssl, sqlite3, sys; print(sys.version)"',
  },
  {
    ...defaults,
    id: 'lua',
    title: 'Lua',
    description: 'Interpreter and library',
    archiveName: /^lua(5\.\d)?$/,
    debianDirectory: 'lua-',
    archives: [
      ['lua-5.4.7.tar.gz', 'lua-5.4.7'],
      ['lua5.4_5.4.4.orig.tar.gz', 'lua-5.4.4'],
    ],
    prefix: '/opt/lua',
    command: 'make linux && make install INSTALL_TOP=/opt/lua',
    notes: 'Versions before 5.4 need `libreadline-dev`.',
    tryCommand: `lua -e 'print(_VERSION)'`,
  },
  {
    ...defaults,
    id: 'zlib',
    title: 'zlib',
    description: 'Compression library',
    archiveName: /^zlib$/,
    debianDirectory: 'zlib-',
    archives: [
      ['zlib-1.3.1.tar.gz', 'zlib-1.3.1'],
      ['zlib_1.2.13.dfsg.orig.tar.bz2', 'zlib-1.2.13.dfsg'],
    ],
    prefix: '/opt/zlib',
    command: './configure --prefix=/opt/zlib && make && make install',
    tryCommand: 'pkg-config --modversion zlib',
  },
  {
    ...defaults,
    id: 'openssl',
    title: 'OpenSSL',
    description: 'TLS and cryptography: libraries and command line',
    archiveName: /^openssl(-openssl)?$/,
    debianDirectory: 'openssl-',
    archives: [
      ['openssl-3.3.1.tar.gz', 'openssl-3.3.1'],
      ['openssl_3.0.20.orig.tar.gz', 'openssl-3.0.20'],
    ],
    prefix: '/opt/openssl',
    command: `./config --prefix=/opt/openssl --openssldir=/opt/openssl/ssl --libdir=lib no-tests -Wl,-rpath,/opt/openssl/lib &&
make -s &&
make -s install_sw install_ssldirs`,
    environment: 'LD_RUN_PATH=$PREFIX/lib',
    libraryPath: false,
    packages: ['perl'],
    notes:
      'Its libraries are not on `LD_LIBRARY_PATH`, where curl, ssh and git of the image would load them. `LD_RUN_PATH` makes the linker record where they are in the programs that a suite links, unless it is called with an `-rpath` of its own.',
    tryCommand: 'openssl version',
  },
  {
    ...defaults,
    id: 'libevent',
    title: 'libevent',
    description: 'Event notification library',
    archiveName: /^libevent(-release)?$/,
    debianDirectory: 'libevent-',
    archives: [
      ['libevent-2.1.12-stable.tar.gz', 'libevent-2.1.12-stable'],
      ['libevent_2.1.12-stable.orig.tar.gz', 'libevent-2.1.12-stable'],
    ],
    prefix: '/opt/libevent',
    command: `./configure --prefix=/opt/libevent --disable-static --disable-openssl --disable-samples &&
make &&
make install`,
    notes: 'Leave out `--disable-openssl` for `bufferevent_openssl`; this needs `libssl-dev`.',
    tryCommand: 'pkg-config --modversion libevent',
  },
  {
    ...defaults,
    id: 'pcre2',
    title: 'PCRE2',
    description: 'Regular expressions library',
    archiveName: /^pcre2$/,
    debianDirectory: 'pcre2-',
    archives: [
      ['pcre2-10.44.tar.bz2', 'pcre2-10.44'],
      ['pcre2_10.42.orig.tar.gz', 'pcre2-10.42'],
    ],
    prefix: '/opt/pcre2',
    command: './configure --prefix=/opt/pcre2 --disable-static --enable-jit && make && make install',
    tryCommand: 'pcre2-config --version',
  },
  {
    ...defaults,
    id: 'cmake',
    title: 'CMake',
    description: 'Build system generator, with CTest and CPack',
    archiveName: /^cmake$/,
    debianDirectory: 'cmake-',
    archives: [
      ['cmake-3.30.2.tar.gz', 'cmake-3.30.2'],
      ['cmake_3.25.1.orig.tar.gz', 'cmake-3.25.1'],
    ],
    prefix: '/opt/cmake',
    command: `./bootstrap --prefix=/opt/cmake --parallel="$(nproc)" -- -DBUILD_TESTING=OFF -DCMAKE_USE_OPENSSL=OFF &&
make &&
make install`,
    notes:
      'Without OpenSSL, `file(DOWNLOAD)` has no HTTPS. Suites have no network unless the server allows it.',
    tryCommand: 'cmake --version',
  },
  {
    ...defaults,
    id: 'jq',
    title: 'jq',
    description: 'JSON on the command line',
    archiveName: /^jq(-jq)?$/,
    debianDirectory: 'jq-jq-',
    archives: [
      ['jq-1.7.1.tar.gz', 'jq-1.7.1'],
      ['jq-jq-1.7.1.tar.gz', 'jq-jq-1.7.1'],
      ['jq_1.6.orig.tar.gz', 'jq-jq-1.6'],
    ],
    prefix: '/opt/jq',
    command: `{ [ -x configure ] || autoreconf -i; } &&
./configure --prefix=/opt/jq --disable-docs --disable-maintainer-mode $([ -f modules/oniguruma/configure.ac ] && echo --with-oniguruma=builtin) &&
make &&
make install`,
    packages: ['autoconf', 'automake', 'libtool', 'libonig-dev'],
    notes:
      'Archives of a release (`jq-1.7.1.tar.gz`) need none of these packages; those of a tag and Debian’s do.',
    tryCommand: `echo '{"a": 1}' | jq .a`,
  },
];

export const findRecipe = (id: string): Recipe | undefined => cookbook.find(one => one.id === id);

export type ArchiveName = {
  /** The part before the version. */
  name: string;
  version: string;
  isDebian: boolean;
};

const ENDING = String.raw`\.(?:tar|tar\.(?:gz|bz2|xz|zst)|tgz|tbz2?|txz|tzst|zip)$`;
const DEBIAN_ARCHIVE = new RegExp(String.raw`^([a-z0-9][a-z0-9.+-]*)_([^_]+)\.orig${ENDING}`);
const ARCHIVE = new RegExp(String.raw`^(.+?)-(v?\d[\w.+~-]*?)${ENDING}`, 'i');

/** Undefined if the name of the file has no version or is not that of an archive. */
export function parseArchiveName(file: string): ArchiveName | undefined {
  // A browser numbers a second download of the same file.
  const plain = file.trim().replace(/ ?\(\d+\)(?=\.)/, '');
  const [, name, version] = DEBIAN_ARCHIVE.exec(plain) ?? ARCHIVE.exec(plain) ?? [];
  if (name === undefined || version === undefined) return undefined;
  return { name, version, isDebian: DEBIAN_ARCHIVE.test(plain) };
}

export const matchRecipe = (file: string): Recipe | undefined => {
  const archive = parseArchiveName(file);
  return archive && cookbook.find(({ archiveName }) => archiveName.test(archive.name));
};

/** The directory that the archive most likely contains. */
export function guessDirectory(file: string, recipe?: Recipe): string {
  const archive = parseArchiveName(file);
  if (!archive) return '';
  const start = archive.isDebian && recipe ? recipe.debianDirectory : `${archive.name}-`;
  return start + archive.version;
}
