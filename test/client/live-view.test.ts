// The live view: its text as a function of state, size and time, and what a terminal shows of it.
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { describe, it, type TestContext } from 'node:test';
import { endOf } from '../../src/client/failing-log.ts';
import { applyEvent, type RequestState } from '../../src/client/follow-request.ts';
import {
  createLiveView,
  renderFinal,
  renderLive,
  type Screen,
  type View,
  type ViewRow,
} from '../../src/client/live-view.ts';
import { cut, jsonLine, type Style, widthOf } from '../../src/client/output.ts';
import { createTerminalScreen } from '../support/terminal-screen.ts';

const START = '2026-03-01T12:00:00.000+00:00';
const at = (seconds: number) => new Date(Date.parse(START) + seconds * 1000).toISOString();

const row = (fields: Partial<ViewRow>): ViewRow => ({
  id: fields.name ?? '1',
  name: 'unit',
  state: 'running',
  startedAt: START,
  finishedAt: null,
  estimatedSeconds: undefined,
  note: '',
  ...fields,
});
const viewOf = (...rows: ViewRow[]): View => ({
  url: 'https://ci.example.org/ui/projects/1/commits/2',
  title: 'main 3f2a1b9c0d Fix the login of guests',
  state: 'building',
  startedAt: START,
  finishedAt: null,
  note: '',
  rows,
});
const screen = (fields: Partial<Screen> = {}): Screen => ({
  style: { paint: (_colour, text) => text },
  columns: 80,
  rows: 24,
  nowMs: Date.parse(START) + 65_000,
  isUnicode: true,
  ...fields,
});
const lineOf = (fields: Partial<ViewRow>, of: Partial<Screen> = {}) =>
  renderLive(viewOf(row(fields)), screen(of))[3];

describe('The text of the live view', () => {
  it('has a line for each suite, with its state, time, estimate, and why it waits', () => {
    const finished = { finishedAt: at(12) };
    for (const [fields, expected] of [
      [{ state: 'running' }, '▶ running    unit  1 min 05 s'],
      [{ state: 'running', estimatedSeconds: 130 }, '▶ running    unit  1 min 05 s  ━━━━━─────  ~ 65 s left'],
      [
        { state: 'running', estimatedSeconds: 600 },
        '▶ running    unit  1 min 05 s  ━─────────  ~ 9 min left',
      ],
      [
        { state: 'running', estimatedSeconds: 60 },
        '▶ running    unit  1 min 05 s  ━━━━━━━━━━  takes longer than before',
      ],
      [
        { state: 'running', estimatedSeconds: 0 },
        '▶ running    unit  1 min 05 s  ━━━━━━━━━━  takes longer than before',
      ],
      [
        { state: 'enqueued', startedAt: null, note: 'position 2: All 4 slots are taken.' },
        '· enqueued   unit              position 2: All 4 slots are taken.',
      ],
      [
        { state: 'passed', ...finished, note: '12 tests passed' },
        '✔ passed     unit  12 s        12 tests passed',
      ],
      [
        { state: 'failed', ...finished, note: 'exit status 1' },
        '✘ failed     unit  12 s        exit status 1',
      ],
      [{ state: 'errored', ...finished, note: 'No image.' }, '! errored    unit  12 s        No image.'],
      [{ state: 'timed_out', ...finished }, '! timed out  unit  12 s'],
      [{ state: 'canceled', ...finished }, '⊘ canceled   unit  12 s'],
    ] as const)
      assert.equal(lineOf(fields), expected);
    assert.equal(
      lineOf({ state: 'running', estimatedSeconds: 130 }, { isUnicode: false }),
      '> running    unit  1 min 05 s  =====-----  ~ 65 s left',
    );
  });

  it('has the address on top and a summary below', () => {
    const view = viewOf(row({}), row({ name: 'lint', state: 'passed', finishedAt: at(3) }));
    assert.deepEqual(renderLive(view, screen()), [
      'https://ci.example.org/ui/projects/1/commits/2',
      'main 3f2a1b9c0d Fix the login of guests',
      '',
      '▶ running    unit  1 min 05 s',
      '✔ passed     lint  3 s',
      '',
      '▶ building for 1 min 05 s: 1 running, 1 passed',
    ]);
    const ended = {
      ...view,
      state: 'errored',
      finishedAt: at(70),
      note: 'The branch does not exist.',
      rows: [],
    };
    assert.equal(
      renderFinal(ended, screen()).at(-1),
      '! errored after 1 min 10 s: The branch does not exist.',
    );
  });

  it('is cut at the width, never wrapped, also with wide and unprintable characters', () => {
    const names = ['x'.repeat(100), '測試'.repeat(30), 'e\u0301'.repeat(50), '\x1b[2Jevil\r\n', '🚀 launch'];
    const rows = names.map(name => row({ name, note: 'a long remark about it'.repeat(5) }));
    for (const columns of [100, 50, 20, 3, 1]) {
      const lines = renderLive(viewOf(...rows), screen({ columns }));
      for (const line of lines) assert.ok(widthOf(line) < Math.max(2, columns), `${columns}: ${line}`);
      assert.doesNotMatch(lines.join(''), /[\x00-\x1f]/);
    }
    assert.equal(cut('測試測試', 5), '測試…');
  });

  it('shows what runs and what failed first if not all rows fit, and counts the rest', () => {
    const rows = Array.from({ length: 30 }, (_, index) =>
      row({ name: `suite ${index}`, state: 'passed', finishedAt: at(index) }),
    );
    rows[20] = row({ name: 'slow' });
    rows[29] = row({ name: 'bad', state: 'failed', finishedAt: at(9) });
    rows[28] = row({ name: 'later', state: 'enqueued', startedAt: null });
    const lines = renderLive(viewOf(...rows), screen({ rows: 12 }));
    assert.equal(lines.length, 11);
    assert.deepEqual(
      lines.slice(3, 7).map(line => line.split(/ {2,}/)[1]?.trim()),
      ['slow', 'bad', 'later', 'suite 0'],
    );
    assert.equal(lines[8], '  and 25 passed');
    assert.equal(renderFinal(viewOf(...rows), screen({ rows: 12 })).length, 35, 'at the end, all are listed');
    for (const height of [1, 2, 5])
      assert.ok(renderLive(viewOf(...rows), screen({ rows: height })).length <= Math.max(1, height - 1));
  });
});

/** A terminal with the emulator as its screen. */
function openTerminal(test: TestContext, columns: number, rows: number) {
  const emulator = createTerminalScreen(columns, rows);
  const out = Object.assign(new EventEmitter(), {
    columns,
    rows,
    isTTY: true,
    write(text: string | Uint8Array) {
      // As the terminal driver does.
      emulator.write(Buffer.from(text).toString().replaceAll('\n', '\r\n'));
      return true;
    },
  });
  const style: Style = {
    isTerminal: true,
    paint: (_colour, text) => `\x1b[31m${text}\x1b[0m`,
    get columns() {
      return out.columns;
    },
  };
  const live = createLiveView(out as unknown as NodeJS.WriteStream, style, {
    isUnicode: true,
    nowMs: () => Date.parse(START) + 65_000,
  });
  test.after(() => live.end());
  return {
    emulator,
    out,
    live,
    /** Draws now, and not in a moment. */
    show(view: View) {
      live.update(view);
      live.above(() => {});
    },
    resize(newColumns: number, newRows: number) {
      emulator.resize(newColumns, newRows);
      Object.assign(out, { columns: newColumns, rows: newRows });
      out.emit('resize');
    },
  };
}

const plainStyle = { paint: (_colour: unknown, text: string) => text };

describe('The live view on a terminal', () => {
  const view = viewOf(
    row({ name: 'unit', note: 'a remark that makes the line a bit longer' }),
    row({ name: 'lint', state: 'passed', finishedAt: at(3) }),
  );

  it('replaces its lines, and leaves the last state and a visible cursor', test => {
    const { emulator, out, live, show } = openTerminal(test, 80, 24);
    out.write('$ assay run\n');
    show(viewOf());
    assert.equal(emulator.isCursorVisible(), false);
    show(view);
    assert.deepEqual(emulator.all(), ['$ assay run', ...renderLive(view, screen())]);
    show(viewOf(row({ name: 'unit' })));
    assert.deepEqual(emulator.all(), ['$ assay run', ...renderLive(viewOf(row({ name: 'unit' })), screen())]);
    const last = { ...view, state: 'passed', finishedAt: at(70) };
    live.end(last);
    assert.deepEqual(emulator.all(), ['$ assay run', ...renderFinal(last, screen())]);
    assert.equal(emulator.isCursorVisible(), true);
  });

  it('prints a log above its lines, whatever the log contains', test => {
    const { emulator, out, live, show } = openTerminal(test, 80, 10);
    show(view);
    const log = Array.from({ length: 30 }, (_, index) => `line ${index} \x1b[32mgreen`).join('\n');
    live.above(() => out.write(`${log}\rline 29 again\n`));
    const lines = renderLive(view, screen({ rows: 10 }));
    assert.deepEqual(emulator.visible().slice(-lines.length), lines);
    assert.deepEqual(
      emulator.all().filter(line => line.startsWith('line ')),
      [...Array.from({ length: 29 }, (_, index) => `line ${index} green`), 'line 29 again'],
    );
    live.end();
  });

  it('survives resizing: nothing is wrapped, doubled or left over', test => {
    const { emulator, out, live, show, resize } = openTerminal(test, 80, 24);
    out.write('$ assay run\n');
    show(view);
    for (const [columns, rows] of [
      [40, 24],
      [20, 24],
      [120, 24],
      [60, 5],
      [60, 24],
    ] as const) {
      resize(columns, rows);
      const expected = renderLive(view, screen({ columns, rows, style: plainStyle }));
      assert.deepEqual(emulator.visible().slice(-expected.length), expected, `${columns} x ${rows}`);
      assert.equal(emulator.all()[0], '$ assay run');
    }
    live.end({ ...view, state: 'passed', finishedAt: at(70) });
    const shown = emulator.all().join('\n');
    assert.equal(shown.split('passed after').length, 2, shown);
  });

  it('does not draw after it has stopped', test => {
    const { emulator, live, show, resize } = openTerminal(test, 80, 24);
    show(view);
    live.stop();
    assert.equal(emulator.isCursorVisible(), true);
    const before = emulator.all();
    live.update(viewOf());
    resize(90, 24);
    live.above(() => {});
    assert.deepEqual(emulator.all(), before);
    live.end();
  });
});

describe('What is followed', () => {
  const request = { id_str: '1', build_state: 'building', commit_ref: 'main' };
  const build = {
    id_str: '10',
    suite_id_str: '5',
    build_request_id_str: '1',
    build_state: 'enqueued',
    started_at: null,
  };
  const state = (fields: object) =>
    ({
      request,
      commit: undefined,
      builds: [{ ...build, suite: 'unit', ...fields }],
    }) as unknown as RequestState;
  const event = (fields: object, seconds: number) =>
    ({ created_at: at(seconds), build: { ...build, ...fields } }) as unknown as Parameters<
      typeof applyEvent
    >[1];
  const after = (known: object, ...events: Parameters<typeof applyEvent>[1][]) => {
    let current = state(known);
    for (const one of events) current = applyEvent(current, one) ?? assert.fail('must be read');
    return current.builds[0];
  };

  it('takes each event over, and ignores events that are older than what was read', () => {
    const running = { build_state: 'running', started_at: at(10) };
    assert.equal(after({}, event(running, 10))?.build_state, 'running');
    assert.equal(after(running, event({}, 9))?.build_state, 'running', 'queued before it started');
    assert.equal(after(running, event({}, 20))?.build_state, 'enqueued', 'queued again');
    assert.equal(after({ build_state: 'passed' }, event(running, 10))?.build_state, 'passed');
    assert.equal(after({ estimated_seconds: 7 }, event(running, 10))?.estimated_seconds, 7);
    const known = state(running);
    assert.equal(applyEvent(known, event({ build_request_id_str: '2' }, 30)), known, 'of another request');
    assert.equal(applyEvent(known, event({ id_str: '11' }, 30)), undefined, 'a rerun has to be read');
    assert.equal(applyEvent(known, event({ id_str: '9' }, 30)), known, 'replaced by a rerun');
  });

  it('has a log of which the last step is shown, at most 200 lines, byte for byte', () => {
    const head = '[assay] checkout of 3f2a\nHEAD is now at\n[assay] suite unit: make\n';
    const show = (text: string, hasMore = false) => {
      const { bytes, isCut } = endOf(Buffer.from(text, 'latin1'), hasMore);
      return [Buffer.from(bytes).toString('latin1'), isCut];
    };
    assert.deepEqual(show(`${head}\xffoh no`), ['[assay] suite unit: make\n\xffoh no', true]);
    assert.deepEqual(show('cannot start\n'), ['cannot start\n', false]);
    assert.deepEqual(show('rest of a line\nwhole line\n', true), ['whole line\n', true]);
    assert.deepEqual(show(''), ['', false]);
    const lines = (count: number) => Array.from({ length: count }, (_, index) => `${index}\n`);
    assert.deepEqual(show(lines(200).join('')), [lines(200).join(''), false]);
    assert.deepEqual(show(head + lines(500).join('')), [lines(500).slice(300).join(''), true]);
  });

  it('is printed as JSON with exact ids', () => {
    const id = 910108846196785155n;
    const parsed = JSON.parse(`{"id":${id},"id_str":"${id}","name":"\\"id\\":1,\\"id_str\\":\\"2\\""}`);
    assert.equal(
      jsonLine(parsed),
      `{"id":${id},"id_str":"${id}","name":"\\"id\\":1,\\"id_str\\":\\"2\\""}\n`,
    );
  });
});

it('what the terminal shows is what was written last', () => {
  for (const [written, shown] of [
    ['one\r\n\x1b[31mtwo\x1b[0m\r\n\x1b[2A\r\x1b[Jthree\x1b[K\r\nfo\x1b[?25hur', ['three', 'four']],
    ['12345\rab\x1b[K\r\n\r\nc', ['ab', '', 'c']],
  ] as const) {
    const screen = createTerminalScreen(80, 24);
    screen.write(written);
    assert.deepEqual(screen.all(), shown);
  }
});
