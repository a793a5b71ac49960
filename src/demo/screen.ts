// The output of the demo: on a terminal one live line for each step, with its running jobs below it; elsewhere a plain
// line for each event.
import type { WriteStream } from 'node:tty';

export type Tone = 'good' | 'bad' | 'dim' | 'bold' | 'busy';

type Step = {
  /** The current activity, shown while it lasts. */
  say(note: string): void;
  /** One of several jobs of the step. Its time runs until its tone is neither `dim` nor `busy`. */
  row(label: string, state: string, tone: Tone): void;
  end(note: string, isGood?: boolean): void;
};

export type Screen = {
  step(label: string): Step;
  print(text?: string): void;
  paint(tone: Tone, text: string): string;
  tick(isGood: boolean): string;
  /** Characters in a line; infinite when the output is not a terminal. */
  width(): number;
  /** Removes the live lines when a step is aborted. */
  clear(): void;
};

const codes: Record<Tone, number> = { good: 32, bad: 31, dim: 2, bold: 1, busy: 36 };
const REDRAW_MS = 100;
const LABEL_WIDTH = 12;
const STATE_WIDTH = 10;
/** The width of mark, time and label. */
const INDENT = LABEL_WIDTH + 12;

export function createScreen(
  out: WriteStream = process.stdout,
  environment: NodeJS.ProcessEnv = process.env,
): Screen {
  const isLive = out.isTTY === true && environment.TERM !== 'dumb';
  const hasColor = isLive && !environment.NO_COLOR;
  const hasUnicode = /utf-?8/i.test(environment.LC_ALL || environment.LC_CTYPE || environment.LANG || '');
  const startedAt = performance.now();
  const paint = (tone: Tone, text: string) => (hasColor ? `\x1b[${codes[tone]}m${text}\x1b[0m` : text);
  const tick = (isGood: boolean) => {
    const [good, bad] = hasUnicode ? ['✓', '✗'] : ['+', 'x'];
    return isGood ? paint('good', good as string) : paint('bad', bad as string);
  };
  const spinner = hasUnicode ? [...'⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏'] : [...'|/-\\'];

  if (!isLive) {
    const log = (text: string) =>
      out.write(`[${seconds(performance.now() - startedAt).padStart(7)}] ${text}\n`);
    return {
      paint,
      tick,
      print: (text = '') => out.write(`${text}\n`),
      width: () => Number.POSITIVE_INFINITY,
      clear() {},
      step: label => ({
        say() {},
        row: (what, state) => log(`${label}: ${what}: ${state}`),
        end: (note, isGood = true) => log(`${label}: ${note}${isGood ? '' : ' (FAILED)'}`),
      }),
    };
  }

  let drawn = 0;
  let timer: NodeJS.Timeout | undefined;
  const erase = () => {
    if (drawn > 0) out.write(`\x1b[${drawn}A\x1b[J`);
    drawn = 0;
  };
  const clear = () => {
    clearInterval(timer);
    erase();
    out.write('\x1b[?25h');
  };
  const width = () => Math.max(40, (out.columns ?? 80) - 1);
  return {
    paint,
    tick,
    width,
    print(text = '') {
      erase();
      out.write(`${text}\n`);
    },
    clear,
    step(label) {
      const begunAt = performance.now();
      const rows = new Map<string, { state: string; tone: Tone; changedAt: number; tookMs?: number }>();
      let note = '';
      let turn = 0;
      const line = (mark: string, text: string) => {
        const time = paint('dim', seconds(performance.now() - begunAt).padStart(7));
        return `${mark} ${time}  ${label.padEnd(LABEL_WIDTH)} ${cut(text, width() - INDENT)}`;
      };
      const rowLine = (what: string, whatWidth: number) => {
        const { state, tone, changedAt, tookMs } = rows.get(what)!;
        const time = seconds(tookMs ?? performance.now() - changedAt);
        const tail = `${paint(tone, state.padEnd(STATE_WIDTH))} ${paint('dim', time)}`;
        return `${' '.repeat(INDENT)}${cut(what, width() - INDENT - STATE_WIDTH - 10).padEnd(whatWidth)}  ${tail}`;
      };
      const draw = () => {
        turn += 1;
        const whatWidth = Math.max(0, ...[...rows.keys()].map(what => what.length));
        const lines = [
          line(paint('busy', spinner[turn % spinner.length] as string), note),
          ...[...rows.keys()].map(what => rowLine(what, whatWidth)),
        ].slice(0, Math.max(1, (out.rows ?? 24) - 1));
        erase();
        out.write(`${lines.join('\n')}\n`);
        drawn = lines.length;
      };
      out.write('\x1b[?25l');
      draw();
      timer = setInterval(draw, REDRAW_MS);
      return {
        say(text) {
          note = text;
        },
        row(what, state, tone) {
          const changedAt = performance.now();
          const tookMs = changedAt - (rows.get(what)?.changedAt ?? changedAt);
          const isUnfinished = tone === 'dim' || tone === 'busy';
          rows.set(what, { state, tone, changedAt, ...(!isUnfinished && { tookMs }) });
        },
        end(text, isGood = true) {
          clear();
          out.write(`${line(tick(isGood), text)}\n`);
        },
      };
    },
  };
}

export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

/** Shortens text to one line, without control characters. */
export function cut(text: string, width: number): string {
  const plain = text.replace(/\x1b\[[0-9;]*[A-Za-z]/g, '').replace(/\p{Cc}/gu, ' ');
  return plain.length > width ? `${plain.slice(0, width - 3)}...` : plain;
}
