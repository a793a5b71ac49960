// What `run`, `watch` and `deploy` show on a terminal: a line for each suite, redrawn in place. The text is a pure function of
// the state, the size of the terminal and the time.

import { type Colour, colourOf, cut, durationText, plain, type Style, stateText, widthOf } from './output.ts';

export type ViewRow = {
  id: string;
  name: string;
  state: string;
  startedAt: string | null;
  finishedAt: string | null;
  estimatedSeconds: number | undefined;
  /** Why it waits, or how it ended. */
  note: string;
};

export type View = {
  /** The page to look at. */
  url: string;
  /** What is built, from where. */
  title: string;
  state: string;
  startedAt: string | null;
  /** Null until all of it has ended. */
  finishedAt: string | null;
  note: string;
  rows: readonly ViewRow[];
};

export type Screen = {
  style: Pick<Style, 'paint'>;
  columns: number;
  rows: number;
  nowMs: number;
  isUnicode: boolean;
};

/** Fixed, so that columns do not move when states change. */
const STATE_COLUMNS = 'timed out'.length;
const ELAPSED_COLUMNS = '1 min 05 s'.length;
const MAX_NAME_COLUMNS = 40;
const BAR_COLUMNS = 10;
/** The address, the title, two empty lines and the summary. */
const FRAME_ROWS = 5;

type Icon = 'passed' | 'failed' | 'errored' | 'running' | 'waiting' | 'canceled';
const ICONS: Record<Icon, [unicode: string, ascii: string]> = {
  passed: ['✔', '+'],
  failed: ['✘', 'x'],
  errored: ['!', '!'],
  running: ['▶', '>'],
  waiting: ['·', '.'],
  canceled: ['⊘', '-'],
};

function iconOf(state: string): Icon {
  if (['passed', 'deployed'].includes(state)) return 'passed';
  if (state === 'failed') return 'failed';
  if (['errored', 'timed_out'].includes(state)) return 'errored';
  if (['running', 'building', 'fetching', 'deploying'].includes(state)) return 'running';
  return ['canceled', 'skipped'].includes(state) ? 'canceled' : 'waiting';
}

/** What comes first when not all rows fit. */
const URGENCY: readonly Icon[] = ['running', 'failed', 'errored', 'waiting', 'canceled', 'passed'];

type Segment = string | [colour: Colour, text: string];

/** One line, cut at the edge of the terminal. */
function fit(segments: readonly Segment[], { style, columns }: Screen): string {
  let left = columns;
  let line = '';
  for (const segment of segments) {
    const [colour, text] = typeof segment === 'string' ? [undefined, segment] : segment;
    const shown = cut(text, left);
    left -= widthOf(shown);
    line += colour === undefined || shown.trim() === '' ? shown : style.paint(colour, shown);
    if (shown !== text) break;
  }
  return line.trimEnd();
}

const symbol = (icon: Icon, { isUnicode }: Screen) => ICONS[icon][isUnicode ? 0 : 1];

/** How long it has been running, or ran. Empty before it starts. */
function elapsedText(
  { startedAt, finishedAt }: Pick<ViewRow, 'startedAt' | 'finishedAt'>,
  nowMs: number,
): string {
  if (startedAt === null) return '';
  const endMs = finishedAt === null ? nowMs : Date.parse(finishedAt);
  return durationText(endMs - Date.parse(startedAt));
}

function outlook(row: ViewRow, { nowMs, isUnicode }: Screen): Segment[] {
  if (row.estimatedSeconds === undefined || row.startedAt === null || row.finishedAt !== null) return [];
  const totalMs = row.estimatedSeconds * 1000;
  const leftMs = totalMs - (nowMs - Date.parse(row.startedAt));
  const done = Math.max(0, Math.min(BAR_COLUMNS, Math.round(BAR_COLUMNS * (1 - leftMs / totalMs))));
  const [full, empty] = isUnicode ? ['━', '─'] : ['=', '-'];
  const text = leftMs < 1000 ? 'takes longer than before' : `~ ${roughText(leftMs)} left`;
  return [
    '  ',
    ['blue', (full as string).repeat(done)],
    ['dim', (empty as string).repeat(BAR_COLUMNS - done)],
    `  ${text}`,
  ];
}

/** An estimate is not exact to the second. */
function roughText(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 10) return `${Math.ceil(seconds)} s`;
  if (seconds < 90) return `${Math.ceil(seconds / 5) * 5} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
}

function rowLines(rows: readonly ViewRow[], screen: Screen): string[] {
  const names = rows.map(({ name }) => cut(plain(name), MAX_NAME_COLUMNS));
  const nameColumns = Math.max(0, ...names.map(widthOf));
  const pad = (text: string, width: number) => text + ' '.repeat(Math.max(0, width - widthOf(text)));
  return rows.map((row, at) => {
    const colour = colourOf(row.state);
    return fit(
      [
        [colour, `${symbol(iconOf(row.state), screen)} ${pad(stateText(row.state), STATE_COLUMNS)}`],
        `  ${pad(names[at] as string, nameColumns)}  `,
        pad(elapsedText(row, screen.nowMs), ELAPSED_COLUMNS),
        ...outlook(row, screen),
        ...(row.note === '' ? [] : (['  ', ['dim', plain(row.note)]] as Segment[])),
      ],
      screen,
    );
  });
}

/** Such as `1 failed, 2 running, 10 passed`. */
function countText(rows: readonly ViewRow[]): string {
  const counts = new Map<string, number>();
  for (const { state } of rows) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts]
    .sort(([a], [b]) => URGENCY.indexOf(iconOf(a)) - URGENCY.indexOf(iconOf(b)))
    .map(([state, count]) => `${count} ${stateText(state)}`)
    .join(', ');
}

function summaryLine(view: View, screen: Screen): string {
  const elapsed = elapsedText(view, screen.nowMs);
  const counts = view.rows.length > 1 ? `: ${countText(view.rows)}` : '';
  const note = view.note === '' ? '' : `: ${plain(view.note)}`;
  return fit(
    [
      [colourOf(view.state), `${symbol(iconOf(view.state), screen)} ${stateText(view.state)}`],
      ` ${view.finishedAt === null ? 'for' : 'after'} ${elapsed}${counts}${note}`,
    ],
    screen,
  );
}

const headLines = (view: View, screen: Screen) => [
  fit([['bold', view.url]], screen),
  fit([plain(view.title)], screen),
];

/** While it is followed: never wider or higher than the terminal. */
export function renderLive(view: View, screen: Screen): string[] {
  // A line that fills the last column would wrap on some terminals, and the cursor is below the last line.
  const inside = { ...screen, columns: screen.columns - 1 };
  const space = Math.max(1, screen.rows - 1 - FRAME_ROWS);
  const hidden = view.rows.length > space ? view.rows.length - (space - 1) : 0;
  const shown =
    hidden === 0
      ? view.rows
      : view.rows
          .toSorted((a, b) => URGENCY.indexOf(iconOf(a.state)) - URGENCY.indexOf(iconOf(b.state)))
          .slice(0, space - 1);
  const rest = view.rows.filter(row => !shown.includes(row));
  const lines = [
    ...headLines(view, inside),
    '',
    ...rowLines(shown, inside),
    ...(hidden === 0 ? [] : [fit([['dim', `  and ${countText(rest)}`]], inside)]),
    ...(view.rows.length === 0 ? [] : ['']),
    summaryLine(view, inside),
  ];
  return lines.slice(-Math.max(1, screen.rows - 1));
}

/** At the end: everything, in as many lines as it takes. */
export function renderFinal(view: View, screen: Screen): string[] {
  const unlimited = { ...screen, columns: Number.POSITIVE_INFINITY };
  return [
    ...headLines(view, unlimited),
    '',
    ...rowLines(view.rows, unlimited),
    ...(view.rows.length === 0 ? [] : ['']),
    summaryLine(view, unlimited),
  ];
}

const REDRAW_MS = 100;
const CLOCK_MS = 1_000;
const HIDE_CURSOR = '\x1b[?25l';
const SHOW_CURSOR = '\x1b[?25h';
const CLEAR_BELOW = '\x1b[J';
const CLEAR_REST = '\x1b[K';
const RESET_COLOUR = '\x1b[0m';

export type LiveView = {
  update(view: View): void;
  /** Prints above the live lines. The text may contain anything: the lines are drawn again below it. */
  above(print: () => void): void;
  /** Leaves the lines as they are. What is printed from now on is below them. */
  stop(): void;
  /** Replaces the lines by the last state, or leaves them as they are. */
  end(last?: View): void;
};

/** Draws on the terminal. */
export function createLiveView(
  out: NodeJS.WriteStream,
  style: Style,
  options: { isUnicode: boolean; nowMs(): number },
): LiveView {
  let view: View | undefined;
  let drawn: readonly string[] = [];
  let drawnAt = Number.NEGATIVE_INFINITY;
  let isStopped = false;
  let redraw: NodeJS.Timeout | undefined;

  const screen = (): Screen => ({
    style,
    columns: style.columns,
    rows: out.rows || 24,
    nowMs: options.nowMs(),
    isUnicode: options.isUnicode,
  });
  /** A narrower terminal has wrapped the lines that were drawn before. */
  const drawnRows = () =>
    drawn.reduce((rows, line) => rows + Math.max(1, Math.ceil(widthOf(line) / style.columns)), 0);
  const toTop = () => (drawn.length === 0 ? '' : `\x1b[${drawnRows()}A\r`);
  const erase = () => {
    out.write(`${toTop()}${CLEAR_BELOW}`);
    drawn = [];
  };
  const draw = () => {
    clearTimeout(redraw);
    redraw = undefined;
    if (!view || isStopped) return;
    drawnAt = performance.now();
    const lines = renderLive(view, screen());
    if (lines.length === drawn.length && lines.every((line, at) => line === drawn[at])) return;
    out.write(
      `${HIDE_CURSOR}${toTop()}${lines.map(line => `${line}${CLEAR_REST}\n`).join('')}${CLEAR_BELOW}`,
    );
    drawn = lines;
  };
  const drawSoon = () => {
    redraw ??= setTimeout(draw, Math.max(0, drawnAt + REDRAW_MS - performance.now()));
  };
  const showCursor = () => out.write(SHOW_CURSOR);
  const clock = setInterval(draw, CLOCK_MS);
  const suspend = () => {
    showCursor();
    process.kill(process.pid, 'SIGSTOP');
  };
  const resume = () => {
    drawn = [];
    draw();
  };
  out.on('resize', draw);
  process.on('exit', showCursor);
  if (process.platform !== 'win32') process.on('SIGTSTP', suspend).on('SIGCONT', resume);

  return {
    update(next) {
      view = next;
      drawSoon();
    },
    above(print) {
      erase();
      print();
      out.write(RESET_COLOUR);
      draw();
    },
    stop() {
      // The terminal has printed "^C".
      if (!isStopped) out.write(`\r${CLEAR_REST}`);
      isStopped = true;
      drawn = [];
      showCursor();
    },
    end(last) {
      clearTimeout(redraw);
      clearInterval(clock);
      out.off('resize', draw);
      process.off('exit', showCursor);
      process.off('SIGTSTP', suspend).off('SIGCONT', resume);
      if (last) {
        if (!isStopped) erase();
        out.write(
          renderFinal(last, screen())
            .map(line => `${line}\n`)
            .join(''),
        );
      }
      showCursor();
    },
  };
}
