// The log of a build: every byte once and in order, whatever a suite prints; and the firehose that shows it live.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { connect } from 'node:tls';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import { collect } from '../../support/journey.ts';

const MIB = 1024 * 1024;
/** The command's part of a log. */
const output = (log: string) => log.split('\n').slice(2).join('\n');

describe('The log of a build', { concurrency: 3 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 3, logLimitBytes: 4 * MIB });
  });
  after(() => assay.close());

  test('masks the values of variables, across lines and across writes', async () => {
    const project = await assay.project();
    const key = '-----BEGIN KEY-----\nabcdefghijkl\nshort\n-----END KEY-----';
    const { log } = await project.runOne({
      command: [
        'echo "plain $TOKEN plain"',
        'printf "super"; sleep 0.3; printf "secret"; sleep 0.3; echo "value"',
        'echo "$KEY"',
        'echo "$KEY" | sed -n 2p',
        'echo "short $SMALL"',
        'echo "supersecretval"',
        'printf "$TOKEN"',
      ].join('\n'),
      variables: { TOKEN: 'supersecretvalue', KEY: key, SMALL: 'seven77' },
    });
    assert.equal(output(log), 'plain *** plain\n***\n***\n***\nshort seven77\nsupersecretval\n***');
  });

  test('has stdout and stderr in their order', async () => {
    const project = await assay.project();
    const { log } = await project.runOne({
      command: 'i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done',
    });
    const expected = Array.from({ length: 500 }, (_, i) => `out ${i}\nerr ${i}\n`).join('');
    assert.equal(output(log), expected);
  });

  test('keeps bytes that are not UTF-8, and the firehose shows them as U+FFFD', async () => {
    const project = await assay.project();
    const { build } = await project.runOne({
      command: String.raw`printf 'a\377b\300\257c\n'; printf '\342\202'; sleep 0.3; printf '\254\n'; printf 'end\342\202'`,
    });
    const bytes = await project.logBytes(build.id_str as string);
    assert.equal(output(bytes.toString('latin1')), 'a\xffb\xc0\xafc\n\xe2\x82\xac\nend\xe2\x82');
    const events = await collect(await project.firehose(`/builds/${build.id_str}`));
    const logs = events.filter(({ event }) => event === 'log');
    const shown = logs.map(({ data }) => data.text).join('');
    assert.equal(output(shown), 'a\ufffdb\ufffd\ufffdc\n€\nend\ufffd');
    assert.equal(logs.at(-1)?.id, String(bytes.length), 'offsets count the kept bytes');
  });

  test('stops at LOG_LIMIT and says how much was omitted, even on one endless line', async () => {
    const project = await assay.project();
    // 50 MB on one line, next to a second build that must not be affected.
    const line = project.runOne({
      command: 'head -c 50000000 /dev/zero | tr "\\0" x; echo; echo end; exit 3',
    });
    const other = await (await assay.project()).runOne({ command: 'echo fine' });
    const { build, log } = await line;
    assert.equal(other.build.build_state, 'passed');
    assert.equal(build.build_state, 'failed');
    assert.equal(build.exit_code, 3);
    assert.ok(log.length < 4 * MIB + 1000, `${log.length} bytes are kept`);
    const [, leftOut] = /past the limit of 4194304 bytes was not kept: (\d+) bytes omitted/.exec(log) ?? [];
    const kept = /x{1000,}/.exec(log)?.[0].length ?? 0;
    assert.equal(Number(leftOut) + kept, 50_000_000 + '\nend\n'.length);
    assert.match(
      log,
      /\[assay\] the command exited with 3\n\[assay\] output past|\[assay\] output past.*\n$/,
    );
  });

  test('ends with the command, whatever daemons it leaves behind', async () => {
    const project = await assay.project();
    const { build, log } = await project.runOne({
      command:
        '(while :; do echo daemon; sleep 0.05; done) & setsid sleep 1000 & nohup sleep 1000 >/dev/null 2>&1 & sleep 0.2; echo last',
    });
    assert.equal(build.build_state, 'passed');
    assert.match(log, /daemon\n/);
    assert.match(log, /last\n/);
    await assay.containersUntil(names => !names.some(name => name.includes(build.id_str as string)));
  });

  test('supports ranges', async () => {
    const project = await assay.project();
    const { build, log } = await project.runOne({ command: 'echo 0123456789' });
    const path = `${project.path}/builds/${build.id_str}/log`;
    const at = log.indexOf('0123456789');
    const response = await assay.client.call('GET', path, {
      as: assay.as,
      headers: { range: `bytes=${at + 2}-${at + 4}` },
    });
    assert.equal(response.status, 206);
    assert.equal(response.text, '234');
  });
});

describe('The firehose of a build', { concurrency: 3 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 3 });
  });
  after(() => assay.close());

  for (const http2 of [false, true]) {
    const version = http2 ? 'HTTP/2' : 'HTTP/1.1';
    test(`sends state, log and end live over ${version}, and resumes at the exact byte`, async () => {
      const project = await assay.project();
      await project.suite({
        command: 'for i in 1 2 3 4 5 6 7 8; do echo "line $i: äöü€"; sleep 0.3; done; sleep 1000',
      });
      const { id_str: buildId } = await project.buildOf(await project.request());
      // Disconnects in the middle, repeatedly, and returns with the last ID.
      let lastEventId: string | undefined;
      let text = '';
      const states = new Set<unknown>();
      let rounds = 0;
      while (!text.includes('line 8')) {
        rounds += 1;
        for await (const { event, id, data } of await project.firehose(
          `/builds/${buildId}`,
          lastEventId,
          http2,
        )) {
          if (event === 'state') states.add(data.build_state);
          if (event !== 'log') continue;
          assert.equal(data.offset, Buffer.byteLength(text), 'it begins where it was broken off');
          text += data.text;
          lastEventId = id;
          break;
        }
      }
      assert.ok(rounds > 2);
      assert.ok(states.has('running'));
      const rest = collect(await project.firehose(`/builds/${buildId}`, lastEventId, http2));
      await project.cancel(`builds/${buildId}`);
      const events = await rest;
      for (const { event, data } of events) if (event === 'log') text += data.text;
      assert.equal(text, await project.log(buildId as string));
      assert.equal(events.at(-1)?.event, 'end');
      assert.equal(events.at(-1)?.data.build_state, 'canceled');
      const after = await collect(await project.firehose(`/builds/${buildId}`, events.at(-2)?.id, http2));
      assert.deepEqual(
        after.map(({ event }) => event),
        ['state', 'end'],
        'who comes back after the end gets state and end again',
      );
    });
  }

  test('waits for a reader that does not read, without affecting others', async () => {
    const project = await assay.project();
    await project.suite({
      command: 'echo begun; sleep 1; head -c 30000000 /dev/zero | tr "\\0" y; echo; echo end',
    });
    const { id_str: buildId } = await project.buildOf(await project.request());
    const path = `${project.path}/builds/${buildId}/firehose`;
    const { hostname, port } = new URL(assay.client.origin);
    const idle = connect({ host: hostname, port: Number(port), ca: assay.client.ca });
    idle.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: ${assay.as}\r\n\r\n`);
    idle.pause();
    idle.on('error', () => {});
    const closed = once(idle, 'close');
    const events = await collect(await project.firehose(`/builds/${buildId}`));
    const size = events.reduce((sum, { data }) => sum + String(data.text ?? '').length, 0);
    assert.ok(size > 30_000_000, `a reader that reads got everything: ${size}`);
    assert.equal(events.at(-1)?.event, 'end');
    let got = 0;
    let last = '';
    idle.on('data', part => {
      got += part.length;
      last = part.toString();
      if (last.includes('event: end')) idle.destroy();
    });
    idle.resume();
    await closed;
    assert.ok(got > 30_000_000, `it got ${got} bytes and then: ${last.slice(-200)}`);
  });

  test('of a project has the events of its builds in order, and replays missed ones', async () => {
    const project = await assay.project();
    await project.suite({ command: 'true' });
    const requestId = await project.request();
    await project.finishedRequest(requestId);
    const seen: string[] = [];
    let middle: string | undefined;
    for await (const { event, id } of await project.firehose('', '0')) {
      if (event === 'state') continue;
      seen.push(event);
      if (event === 'build.enqueued') middle = id;
      if (event === 'build_request.finished') break;
    }
    const order = [
      'build_request.enqueued',
      'build.enqueued',
      'build.started',
      'build.finished',
      'build_request.finished',
    ];
    assert.deepEqual(seen, order);
    const missed: string[] = [];
    for await (const { event } of await project.firehose('', middle, true)) {
      if (event !== 'state') missed.push(event);
      if (event === 'build_request.finished') break;
    }
    assert.deepEqual(missed, order.slice(2));
  });
});
