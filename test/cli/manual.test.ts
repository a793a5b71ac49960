// The manual: runs every command in it against a real server, in the shells that people use. Also tests `assay help`,
// and that the text matches the program.
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, globSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { root } from '../../build/bundle.ts';
import { renderText } from '../../src/cli/manual-text.ts';
import { commands } from '../../src/cli.ts';
import { exitMeanings } from '../../src/client/exit-status.ts';
import { settings } from '../../src/config.ts';
import { eventTypes } from '../../src/contract/events.ts';
import { cookbook, type Recipe } from '../../src/domain/cookbook.ts';
import { errorCodes } from '../../src/domain/refusal.ts';
import { operators, subjects } from '../../src/domain/rules.ts';
import { hookTokenFile, postReceiveScript } from '../../src/domain/trigger/post-receive.ts';
import { firingOutcomes, ignoredReasons, triggerTypes } from '../../src/domain/trigger/trigger.ts';
import { parseCidrs } from '../../src/domain/webhook/address.ts';
import { findAccountByEmail } from '../../src/store/accounts.ts';
import { createAuthorizationCode, findApplicationByClientId } from '../../src/store/applications.ts';
import { findTopic, parseTopic, searchManual, type Topic } from '../../src/web/manual/manual.ts';
import { topicNames } from '../../src/web/manual/topics.ts';
import { type Appliance, docker, startAppliance } from '../support/appliance.ts';
import { busyboxRoot } from '../support/busybox.ts';
import { parseExact, type Wire } from '../support/client.ts';
import { openDependencies, packTree, type Tree } from '../work/dependencies/fixture.ts';
import { environmentWith, programPath, runAssay, temporaryDirectory } from './program.ts';

const folder = join(root, 'src/web/manual');
const textOf = (topic: string) => readFileSync(join(folder, `${topic}.md`), 'utf8');

type Block = { topic: string; language: string; kind: string; text: string };

const blocks: Block[] = topicNames.flatMap(topic =>
  [...textOf(topic).matchAll(/^```(\w*) ?(\w*)\n(.*?)^```$/gms)].map(([, language, kind, text]) => ({
    topic,
    language: language as string,
    kind: kind as string,
    text: text as string,
  })),
);

/** Commands for the administrator of a server with systemd, and the test that covers each of them. */
const coveredElsewhere: Record<string, [file: string, name: string]> = {
  'tar xzf assay-*-linux-*.tar.gz && cd assay-*/': ['binary/release.test.ts', 'installed, it serves'],
  'sudo ./install.sh': ['binary/release.test.ts', 'installed, it serves'],
  "sudo journalctl -u assay | grep 'set-up code'": ['cli/serve.test.ts', 'a first start prints its address'],
  'sudo journalctl -u assay': ['cli/serve.test.ts', 'a first start prints its address'],
  'sudo systemctl restart assay': ['binary/release.test.ts', 'installed, it serves'],
  'sudo systemctl reload assay': ['cli/serve.test.ts', 'SIGHUP reloads the certificate'],
  'sudo /usr/local/lib/assay/uninstall.sh': ['binary/release.test.ts', 'installed, it serves'],
};

describe('the text of the manual', () => {
  test('every file of the folder is a topic, and every topic is a file with a title and a summary', () => {
    const files = readdirSync(folder).filter(name => name.endsWith('.md'));
    assert.deepEqual(files.toSorted(), topicNames.map(name => `${name}.md`).toSorted());
    for (const name of topicNames) assert.ok((findTopic(name) as Topic).summary.length > 20, name);
  });

  test('every code block is of a kind that is run, or is not a command', () => {
    const run = ['sh run', 'sh root', 'sh hook', 'sh serve', 'sh verify', 'js verify', 'python verify'];
    const shown = ['text', 'text session', 'json', 'json event', 'nginx'];
    for (const { topic, language, kind } of blocks)
      assert.ok([...run, ...shown].includes(`${language} ${kind}`.trim()), `${topic}: ${language} ${kind}`);
    assert.ok(blocks.filter(({ kind }) => kind === 'run').length > 30);
  });

  test('no command has a comment: an interactive zsh would take it as arguments', () => {
    for (const { language, text } of blocks)
      if (language === 'sh') assert.doesNotMatch(text, /(^|\s)#/, text);
  });

  test('commands that need root or systemd are covered by another test', () => {
    const commands = blocks
      .filter(({ kind }) => kind === 'root')
      .flatMap(({ text }) => text.trim().split('\n'));
    assert.deepEqual([...new Set(commands)].toSorted(), Object.keys(coveredElsewhere).toSorted());
    for (const [file, name] of Object.values(coveredElsewhere))
      assert.ok(readFileSync(join(root, 'test', file), 'utf8').includes(`test('${name}`), `${file}: ${name}`);
  });

  test('the messages in the troubleshooting topic are messages of the program', () => {
    const sources = globSync('src/**/*.ts', { cwd: root }).map(path =>
      readFileSync(join(root, path), 'utf8'),
    );
    const source = sources.join('\n').replaceAll("\\'", "'").replaceAll('\\`', '`');
    const rows = textOf('troubleshooting').matchAll(/^\| (`+) ?(.+?) ?\1 \|/gm);
    let count = 0;
    for (const [, , message = ''] of rows)
      for (const part of message.split('…').map(one => one.replace(/^[:\s]+/, '').trim())) {
        if (part.length < 6) continue;
        count += 1;
        assert.ok(source.includes(part), part);
      }
    assert.ok(count > 30);
  });

  test('the manual lists all settings, error codes, exit statuses, event types, subjects, operators, and outcomes of triggers', () => {
    const lists: [topic: string, items: readonly string[]][] = [
      ['settings', settings.map(({ name }) => `ASSAY_${name}`)],
      ['api', errorCodes],
      ['firehose', eventTypes],
      ['concepts', [...subjects, ...operators]],
      ['client', exitMeanings.map(([status]) => `${status} · `)],
      ['triggers', [...triggerTypes, ...firingOutcomes, ...ignoredReasons]],
    ];
    for (const [topic, items] of lists) {
      const text = (findTopic(topic) as Topic).sections.flatMap(({ lines }) => lines).join('\n');
      for (const item of items) assert.ok(text.includes(item), `${topic}: ${item}`);
    }
  });

  test('the example event has the fields of an event', () => {
    const [block] = blocks.filter(({ kind }) => kind === 'event');
    const event = JSON.parse(block?.text ?? '');
    assert.ok(eventTypes.includes(event.type));
    assert.deepEqual(Object.keys(event), ['id', 'id_str', 'type', 'created_at', 'project', 'build']);
  });

  test('every command that the topic client names exists, with the flags that it names', () => {
    const named = textOf('client').matchAll(/`assay ([a-z][^`…]*)`/g);
    let count = 0;
    for (const [text, words = ''] of named) {
      const [first = '', second = ''] = words.split(' ');
      const command = [`${first} ${second}`, first]
        .map(name => commands.find(one => one.name === name))
        .find(Boolean);
      assert.ok(command, text);
      for (const [, flag = ''] of words.matchAll(/ --([a-z-]+)/g))
        assert.ok(flag === 'help' || command.flags[flag], text);
      count += 1;
    }
    assert.ok(count > 15, String(count));
  });

  test('a topic without a title, or with a duplicate heading, is refused', () => {
    assert.throws(() => parseTopic('one', 'Text.\n'), /does not begin with its title/);
    assert.throws(() => parseTopic('one', '# A\n\n## B\n\n## B\n'), /occurs twice/);
  });

  test('the search finds sections that contain every word, titles first, with the line', () => {
    const [first] = searchManual('retries');
    assert.deepEqual([first?.topic.name, first?.section.id], ['webhooks', 'responses-and-retries']);
    const found = searchManual('master key copy');
    assert.ok(found.some(({ topic, line }) => topic.name === 'backup' && /copy/i.test(line)));
    assert.deepEqual(searchManual('no-such-word-anywhere'), []);
    assert.deepEqual(searchManual('  '), []);
  });
});

describe('assay help', () => {
  test('a topic is wrapped, and has no escape sequences when the output is not a terminal', async () => {
    const { status, stdout } = await runAssay(['help', 'concepts'], { COLUMNS: '60' });
    assert.equal(status, 0);
    assert.match(stdout, /^Concepts\n\n {2}The words that Assay uses/);
    assert.doesNotMatch(stdout, /\x1b/);
    for (const line of stdout.split('\n')) assert.ok(line.length <= 60, line);
  });

  test('headings are bold on a terminal, unless NO_COLOR is set', async () => {
    const typed = async (extra: string) => {
      const command = `${extra} ${process.execPath} ${await programPath()} help settings`;
      return execFileSync('script', ['-qec', command, '/dev/null'], {
        env: environmentWith({ TERM: 'xterm' }),
        encoding: 'utf8',
        input: '',
      });
    };
    assert.match(await typed(''), /\x1b\[1mSettings\x1b\[0m/);
    assert.doesNotMatch(await typed('NO_COLOR=1'), /\x1b\[1m/);
  });

  test('without a topic it lists commands and topics; an unknown topic exits with 2 and the list', async () => {
    const listed = await runAssay(['help']);
    assert.equal(listed.status, 0);
    const unknown = await runAssay(['help', 'nonsense']);
    assert.deepEqual([unknown.status, unknown.stdout], [2, '']);
    assert.match(unknown.stderr, /there is no topic "nonsense"/);
    for (const name of topicNames) {
      assert.match(listed.stdout, new RegExp(`^  ${name} `, 'm'));
      assert.match(unknown.stderr, new RegExp(`^  ${name} `, 'm'));
    }
  });

  test('the name of a command prints the help of that command', async () => {
    assert.equal((await runAssay(['help', 'doctor'])).stdout, (await runAssay(['doctor', '--help'])).stdout);
  });

  test('lists, tables, code and links are rendered as plain text', () => {
    const text = renderText(
      parseTopic(
        'one',
        '# One\n\nSee [two](webhooks.md#retries) and **this**.\n\n- a\n- b\n\n1. c\n\n| X | Y |\n|---|---|\n| `k` | v |\n\n```sh run\ncode  here\n```\n',
      ),
      { columns: 41, isBold: false },
    );
    assert.equal(
      text,
      'One\n\n  See two (assay help webhooks) and this.\n\n  - a\n  - b\n\n  1. c\n\n  `k`\n      v\n\n    code  here\n',
    );
  });
});

type Shell = [name: string, args: string[]];
/** How each shell runs a command without reading configuration files. */
const shells: Shell[] = [
  ['bash', ['--norc', '--noprofile', '-e', '-c']],
  ['zsh', ['-f', '-e', '-c']],
  ['dash', ['-e', '-c']],
];

describe('the commands of the manual', { timeout: 600_000 }, () => {
  const place = temporaryDirectory();
  // Also when a name pattern skips these tests and their hooks.
  process.on('exit', place[Symbol.dispose]);
  const image = `assay-manual-${process.pid}:12`;
  const received: { headers: IncomingHttpHeaders; body: Buffer }[] = [];
  let arrived = Promise.withResolvers<void>();
  const receiver = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    received.push({ headers: request.headers, body: Buffer.concat(chunks) });
    response.writeHead(204).end(() => arrived.resolve());
  });
  let assay: Appliance;
  /** Text of the manual, and what replaces it here. */
  const values: Record<string, string> = {};
  let definitions = '';
  let signingSecret = '';
  let hookUrl = '';

  before(async () => {
    assay = await startAppliance({ webhookAllow: parseCidrs('127.0.0.0/8') });
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    mkdirSync(join(place.path, 'bin'));
    mkdirSync(join(place.path, 'backups'));
    const program = (name: string, script: string) => {
      writeFileSync(join(place.path, 'bin', name), `#!/bin/sh\n${script}\n`);
      chmodSync(join(place.path, 'bin', name), 0o755);
    };
    program('assay', `exec '${process.execPath}' '${await programPath()}' "$@"`);
    program('sudo', 'exec "$@"');
    for (const [name, tree] of Object.entries(sources))
      writeFileSync(join(place.path, `${name}.tar.gz`), packTree(tree(name), 'tar -czf - *'));
    const postgresql = 'postgresql-16.4';
    writeFileSync(
      join(place.path, `${postgresql}.tar.bz2`),
      packTree(postgresqlSource(postgresql), 'tar -cjf - *'),
    );
    const recipe = cookbook.find(({ id }) => id === 'postgresql') as Recipe;
    for (const [file, text] of [
      ['command', recipe.command],
      ['launch', recipe.launchCommand],
      ['environment', recipe.environment],
    ] as const)
      writeFileSync(join(place.path, file), text);
    await busyboxRoot(join(place.path, 'root'));
    await docker('import', await tarOf(join(place.path, 'root')), image);

    const live = join(assay.sshd.repositoriesDirectory, 'live.git');
    execFileSync('git', ['init', '-q', '--bare', '-b', 'main', live]);
    const [email = '', key = ''] = Buffer.from(assay.as.split(' ')[1] as string, 'base64')
      .toString()
      .split(/:(.*)/);
    Object.assign(values, {
      '/var/lib/assay-restored': join(place.path, 'restored'),
      '/var/lib/assay': assay.data,
      '/backups': join(place.path, 'backups'),
      'https://localhost:8443': assay.client.origin,
      'git@git.example.org:team/live.git': assay.sshd.urlFor('live.git'),
      'https://hooks.example.org/assay': `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/assay`,
      'YOU@EXAMPLE.ORG': email,
      API_KEY: key,
      'debian:12': image,
      // This stream never ends.
      'api -N $P/firehose': 'api -N --max-time 2 $P/firehose || test $? = 28',
      // There is no terminal to ask on.
      'assay cleanup': 'assay cleanup --yes',
    });
  });
  after(async () => {
    receiver.close();
    await assay?.close();
    const made = assay && (await docker('images', '-q', '--filter', `label=assay.made-by=${assay.instance}`));
    if (made) await docker('rmi', ...made.split('\n'));
    await docker('rmi', image);
  });

  const tarOf = async (directory: string) => {
    execFileSync('tar', ['-C', directory, '-cf', `${directory}.tar`, '.']);
    return `${directory}.tar`;
  };

  const substitute = (written: string) => {
    let text = written;
    for (const [name, value] of Object.entries(values))
      text = text.replaceAll(
        // A shell variable has the name of the word that its value replaces elsewhere.
        /^\w+_ID$/.test(name) ? new RegExp(`(?<!\\$)\\b${name}\\b(?!=)`, 'g') : name,
        () => value,
      );
    return text;
  };

  const execute = ([shell, args]: Shell, script: string, input = ''): Promise<string> =>
    new Promise((resolve, reject) => {
      const env = environmentWith({ PATH: `${place.path}/bin:${process.env.PATH}` });
      const child = execFile(
        shell,
        [...args, script],
        { cwd: place.path, env, timeout: 120_000, maxBuffer: 1 << 26 },
        (error, stdout, stderr) =>
          error ? reject(new Error(`${script}\n${stdout}${stderr}`, { cause: error })) : resolve(stdout),
      );
      // A command that does not read its input may have ended already.
      child.stdin?.on('error', () => {}).end(input);
    });

  /** Runs one line, and remembers the values of its output that later lines need. */
  const runLine = async (shell: Shell, written: string): Promise<string> => {
    if (/\bcode=CODE\b/.test(written)) values.CODE ??= authorizationCode();
    const line = substitute(written);
    assert.doesNotMatch(
      line,
      /(?<!\$)\b[A-Z]+_ID\b(?!=)|ACCESS_TOKEN|CLIENT_SECRET/,
      `${written}: a placeholder has no value`,
    );
    arrived = Promise.withResolvers();
    const output = await execute(shell, definitions + line);
    if (/^(export )?\w+(=|\(\))/.test(line)) definitions += `${line}\n`;
    assert.doesNotMatch(output, /^\{"error"/, line);
    await learn(written, output);
    return output;
  };

  const learn = async (written: string, output: string): Promise<void> => {
    const record = () => parseExact(output).response as Wire;
    const id = () => record().id_str as string;
    const project = () => assay.knownProject(values.PROJECT_ID as string);
    if (/^api \$A\/projects -d/.test(written)) {
      values.PROJECT_ID = id();
      values['865128329846784000'] = id();
      assay.sshd.addKey(record().ssh_public_key as string);
    } else if (/^api \$P\/suites -/.test(written)) values.SUITE_ID = id();
    else if (/^api \$P\/triggers -|\/secret$/.test(written)) {
      values.TRIGGER_ID = id();
      if (record().trigger_type === 'push') {
        hookUrl = record().url as string;
        values.HOOK_SECRET = record().secret as string;
      }
    } else if (/\/fire$/.test(written)) {
      const [firing] = parseExact(output).response as Wire[];
      await project().finishedRequest(firing?.build_request_id_str as string);
    } else if (/ \$P\/snapshots /.test(written)) values.SNAPSHOT_ID = id();
    else if (/ -d snapshot_id=/.test(written)) {
      const { build_state } = await project().finishedRequest(id());
      assert.notEqual(build_state, 'errored');
    } else if (/^api \$P\/build_requests /.test(written)) {
      const build = await project().buildOf(id());
      values.COMMIT_ID = build.commit_id_str as string;
      values.BUILD_ID = build.id_str as string;
    } else if (/^api \$P\/deploy_strategies -/.test(written)) values.DEPLOY_STRATEGY_ID = id();
    else if (/^api \$P\/deploys -/.test(written)) {
      values.DEPLOY_ID = id();
      const deploy = () => project().ask('GET', `/deploys/${values.DEPLOY_ID}`);
      const { state } = await project().until(async () => {
        const found = await deploy();
        return !['enqueued', 'deploying'].includes(found.state as string) && found;
      });
      assert.equal(state, 'deployed');
    } else if (/^api \$A\/dependencies -/.test(written)) values.DEPENDENCY_ID = record().id_ref as string;
    else if (/\/(archive|compile)( |$)/.test(written)) {
      const { state, log } = await openDependencies(assay).finished(values.DEPENDENCY_ID as string);
      assert.equal(state, 'compiled', log);
    } else if (/^api \$P\/notifications -/.test(written)) {
      values.NOTIFICATION_ID = id();
      signingSecret = (record().signing_secret as string | undefined) ?? signingSecret;
    } else if (/\/test$/.test(written)) {
      values.DELIVERY_ID = id();
      await arrived.promise;
    } else if (/ assay app add /.test(written)) {
      [, values.CLIENT_ID = ''] = /^client id +(\S+)/m.exec(output) ?? [];
      [, values.CLIENT_SECRET = ''] = /^client secret +(\S+)/m.exec(output) ?? [];
    } else if (/access_token /.test(written)) values.ACCESS_TOKEN = JSON.parse(output).access_token;
  };

  /** The code that a browser would return with after the user approves. */
  const authorizationCode = () =>
    createAuthorizationCode(assay.app.db, {
      applicationId: findApplicationByClientId(assay.app.db, values.CLIENT_ID as string)?.id as bigint,
      accountId: findAccountByEmail(assay.app.db, values['YOU@EXAMPLE.ORG'] as string)?.id as bigint,
      redirectUri: 'https://monitor.example.org/back',
      scopes: ['projects', 'commits'],
      codeChallenge: null,
      lifetimeMs: 60_000,
    });

  const linesOf = (topic: string) =>
    blocks
      .filter(block => block.topic === topic && block.kind === 'run')
      .flatMap(({ text }) => text.trimEnd().split('\n'));

  for (const shell of shells)
    test(`first-project, in ${shell[0]}`, async () => {
      definitions = '';
      const repository = assay.repository({
        message: 'First\n',
        files: { Makefile: 'check:\n\t@echo checked\n' },
      });
      repository.git('tag', 'v1.0');
      values['git@git.example.org:team/website.git'] = repository.url;
      // Each shell creates its own project, and names are unique.
      values['name=Website'] = `name=Website-${shell[0]}`;
      values['--project Website'] = `--project Website-${shell[0]}`;
      const outputs = new Map<string, string>();
      for (const line of linesOf('first-project')) outputs.set(line, await runLine(shell, line));
      assert.match(outputs.get('api -N $P/builds/BUILD_ID/firehose') ?? '', /^event: end$/m);
      assert.match(outputs.get('api $P/builds/BUILD_ID/log') ?? '', /^checked$/m);
      assert.match(outputs.get('api $P/deploys/DEPLOY_ID') ?? '', /"state":"deployed"/);
    });

  // In this order: the cache needs a suite that has run, and the clean-up needs a stopped server.
  const others = topicNames.filter(
    name => !['first-project', 'install'].includes(name) && linesOf(name).length > 0,
  );
  for (const topic of others)
    test(topic, async () => {
      const outputs = new Map<string, string>();
      for (const line of linesOf(topic)) outputs.set(line, await runLine(shells[2] as Shell, line));
      check[topic]?.(line => outputs.get(line) ?? assert.fail(`the manual has no line ${line}`));
    });

  test('the hook of a plain repository calls its trigger, and never makes a push fail', async () => {
    const text = renderText(findTopic('triggers') as Topic, { columns: 1000, isBold: false });
    const [shown = ''] = /^ +#!\/bin\/sh\n.*?\|\| true\n/ms.exec(text) ?? [];
    const [indent = ''] = /^ +/.exec(shown) ?? [];
    assert.equal(
      shown.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
      postReceiveScript('https://localhost:8443/hooks/TRIGGER_ID'),
    );
    const token = join(place.path, 'token');
    writeFileSync(token, hookTokenFile(values.HOOK_SECRET as string));
    const call = (url: string) =>
      execute(
        shells[2] as Shell,
        `exec 2>&1\n${postReceiveScript(url, join(assay.data, 'tls/ca.pem'), token)}`,
        `${'1'.repeat(40)} ${'0'.repeat(40)} refs/heads/other\n`,
      );
    assert.equal(await call(hookUrl), '');
    const project = assay.knownProject(values.PROJECT_ID as string);
    const path = `/triggers/${hookUrl.split('/').at(-1)}/firings`;
    const [firing] = (await project.ask('GET', path)) as unknown as Wire[];
    assert.deepEqual(
      [firing?.ref, firing?.outcome, firing?.reason],
      ['refs/heads/other', 'ignored', 'deleted'],
    );
    assert.match(await call(`${hookUrl}9`), /^curl: \(22\) .*404/, 'a trigger that does not exist');
  });

  /** What the output of some commands must contain. */
  const check: Record<string, (outputOf: (line: string) => string) => void> = {
    api: outputOf => {
      assert.match(outputOf("grep -i '^link:' headers.txt"), /rel="next"/);
      assert.match(outputOf('curl -u "$AUTH" "$A/whoami?callback=show"'), /^show\(\{"response"/);
      assert.match(
        outputOf('curl -u "$AUTH" -X PUT "$A/projects/$PROJECT_ID" -d description=Shop'),
        /"name":"Website-dash","description":"Shop"/,
      );
    },
    client: outputOf => {
      assert.match(outputOf('assay run main --project Website'), /^\S+ Unit tests: passed/m);
      assert.match(outputOf('assay builds --project Website --json'), /^\{.*"build_state":"passed"/m);
    },
    firehose: outputOf => {
      assert.match(outputOf('api -N $P/firehose'), /^event: state$/m);
      assert.match(outputOf('api -N $P/builds/BUILD_ID/firehose'), /^event: end$/m);
    },
    dependencies: outputOf => {
      assert.match(outputOf('api -N $A/dependencies/DEPENDENCY_ID/firehose'), /^event: end$/m);
      const attached = parseExact(outputOf('api $P/suites/SUITE_ID/dependencies')).response as Wire[];
      assert.deepEqual(attached.map(({ name }) => name).toSorted(), ['Lua', 'Redis', 'zlib']);
    },
    postgresql: outputOf =>
      assert.match(outputOf('api -N $A/dependencies/DEPENDENCY_ID/firehose'), /^event: end$/m),
    schedules: outputOf => {
      const { upcoming } = parseExact(outputOf('api $P/triggers/TRIGGER_ID')).response as Wire;
      assert.equal((upcoming as string[]).length, 5);
      assert.match(outputOf('api $P/triggers/TRIGGER_ID/firings'), /"outcome":"requested"/);
    },
    oauth: outputOf =>
      assert.match(
        outputOf("curl -sS --cacert assay-ca.pem $A/projects -H 'Authorization: Bearer ACCESS_TOKEN'"),
        /"response"/,
      ),
    backup: outputOf =>
      assert.match(
        outputOf('assay backup --verify /backups/assay.backup --data /var/lib/assay'),
        /is intact/,
      ),
  };

  test('a suite uses all four dependencies, and the databases answer', async () => {
    const project = assay.knownProject(values.PROJECT_ID as string);
    const suiteId = await project.suite({ command: 'zlib-hello && lua && redis-cli get && psql' });
    const all = (await assay.ask('GET', '/dependencies')) as unknown as Wire[];
    for (const name of ['zlib', 'Lua', 'Redis', 'PostgreSQL'])
      await project.ask('POST', `/suites/${suiteId}/dependencies`, {
        dependency_id: String(all.find(one => one.name === name)?.id),
      });
    const { build, log } = (await project.run()).of(suiteId);
    assert.equal(build.build_state, 'passed', log);
    assert.match(log, /^hello from zlib\nhello from lua\nserved\npostgres@127\.0\.0\.1: ready$/m);
  });

  test('install: a server that is started by hand, and its clean-up', async () => {
    const [block] = blocks.filter(({ kind }) => kind === 'serve');
    const command = (block?.text ?? '').replace('127.0.0.1:8443', '127.0.0.1:0');
    const child = spawn('sh', ['-c', `exec ${command}`], {
      cwd: place.path,
      env: environmentWith({ PATH: `${place.path}/bin:${process.env.PATH}` }),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let printed = '';
    for await (const chunk of child.stdout) {
      printed += chunk;
      if (printed.includes('set-up code: ')) break;
    }
    assert.match(printed, /^assay is serving https:.*\nset-up code: /);
    child.kill('SIGTERM');
    await once(child, 'exit');
    for (const line of linesOf('install')) await runLine(shells[2] as Shell, line);
    rmSync(join(place.path, 'assay-data'), { recursive: true, force: true });
  });

  describe('the code that checks a signature', () => {
    const sample = (language: string) => {
      const [block] = blocks.filter(one => one.kind === 'verify' && one.language === language);
      return block?.text ?? assert.fail(language);
    };
    /** A genuine delivery, and forged ones that must be rejected. */
    const cases = () => {
      const [{ headers, body }] = received as [(typeof received)[number]];
      const old = { ...headers, 'webhook-timestamp': String(Number(headers['webhook-timestamp']) - 3600) };
      return [
        { headers, body, secret: signingSecret, expected: true },
        { headers, body: Buffer.concat([body, Buffer.from(' ')]), secret: signingSecret, expected: false },
        { headers, body, secret: `whsec_${Buffer.alloc(32).toString('base64')}`, expected: false },
        { headers: old, body, secret: signingSecret, expected: false },
        { headers: { ...headers, 'webhook-id': '1' }, body, secret: signingSecret, expected: false },
      ];
    };

    test('in Node.js', async () => {
      const file = join(place.path, 'verify.mjs');
      writeFileSync(file, sample('js'));
      const { isFromAssay } = await import(pathToFileURL(file).href);
      for (const { headers, body, secret, expected } of cases())
        assert.equal(isFromAssay(headers, body, secret), expected);
    });

    test('in Python', () => {
      const file = join(place.path, 'verify.py');
      const call = 'print(is_from_assay(given["headers"], given["body"].encode(), given["secret"]))';
      writeFileSync(file, `${sample('python')}\nimport json, sys\ngiven = json.load(sys.stdin)\n${call}\n`);
      for (const { headers, body, secret, expected } of cases()) {
        const input = JSON.stringify({ headers, body: body.toString(), secret });
        const answer = execFileSync('python3', [file], { input, encoding: 'utf8' });
        assert.equal(answer.trim(), expected ? 'True' : 'False');
      }
    });

    for (const [shell, args] of shells)
      test(`in ${shell}`, async () => {
        for (const { headers, body, secret, expected } of cases()) {
          const file = join(place.path, 'body');
          writeFileSync(file, body);
          const [id, timestamp, signature] = ['id', 'timestamp', 'signature'].map(
            name => (headers as IncomingHttpHeaders)[`webhook-${name}`],
          );
          const values = { SECRET: secret, ID: id, TIMESTAMP: timestamp, SIGNATURE: signature, BODY: file };
          const status = await new Promise(resolve =>
            execFile(shell, [...args.filter(arg => arg !== '-e'), sample('sh')], {
              env: environmentWith(values as Record<string, string>),
            }).on('exit', resolve),
          );
          assert.equal(status, expected ? 0 : 1);
        }
      });
  });
});

const script = (text: string) => `#!/bin/sh\n${text}\n`;
/** Small replacements for the sources that the manual names, which are compiled and installed in the same way. */
const sources: Record<string, (name: string) => Tree> = {
  'zlib-1.3.1': name => ({
    [`${name}/configure`]: script(
      'printf "install:\\n\\tinstall -D hello %s/bin/zlib-hello\\n" "$(echo "$1" | cut -c10-)" >Makefile',
    ),
    [`${name}/hello`]: script('echo hello from zlib'),
  }),
  'lua-5.4.7': name => ({
    [`${name}/Makefile`]: 'linux:\n\tchmod +x lua\ninstall:\n\tinstall -D lua $(INSTALL_TOP)/bin/lua\n',
    [`${name}/lua`]: script('echo hello from lua'),
  }),
  // The daemon takes a moment until it answers.
  'redis-7.2.5': name => ({
    [`${name}/Makefile`]: 'install:\n\tinstall -D -t $(PREFIX)/bin redis-server redis-cli\n',
    [`${name}/redis-server`]: script('(sleep 0.5; echo served >/tmp/redis) >/dev/null 2>&1 </dev/null &'),
    [`${name}/redis-cli`]: script('case $1 in ping) test -f /tmp/redis ;; *) cat /tmp/redis ;; esac'),
  }),
};

/** Installs programs that are called as the recipe calls them. */
const postgresqlSource = (name: string): Tree => ({
  [`${name}/configure`]: script('echo "prefix = $(echo "$1" | cut -c10-)" >options'),
  [`${name}/Makefile`]: 'include options\nall:\ninstall:\n\tinstall -D -t $(prefix)/bin initdb pg_ctl psql\n',
  [`${name}/contrib/Makefile`]: 'install:\n',
  [`${name}/initdb`]: script('mkdir "$2"'),
  [`${name}/pg_ctl`]: script('echo ready >"$2/state"'),
  [`${name}/psql`]: script('echo "$PGUSER@$PGHOST: $(cat /srv/run/PostgreSQL/data/state)"'),
});
