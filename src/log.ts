// The program's own log: a constant message and facts in fields. Never a secret, a key, or a URL with a token in it.

export type Log = {
  debug(message: string, facts?: Record<string, unknown>): void;
  info(message: string, facts?: Record<string, unknown>): void;
  warn(message: string, facts?: Record<string, unknown>): void;
  error(message: string, facts?: Record<string, unknown>): void;
};

const levels = { debug: 7, info: 6, warn: 4, error: 3 } as const;

/** Under journald a line begins with its level and has no time: the journal keeps both itself. */
export function createLog(
  write: (line: string) => void = line => process.stderr.write(line),
  environment: NodeJS.ProcessEnv = process.env,
): Log {
  const journald = environment.JOURNAL_STREAM !== undefined;
  const say =
    (level: keyof typeof levels) =>
    (message: string, facts: Record<string, unknown> = {}) => {
      const fields = Object.entries(facts).map(([name, value]) => ` ${name}=${render(value)}`);
      const head = journald ? `<${levels[level]}>` : `${new Date().toISOString()} ${level} `;
      write(`${head}${message}${fields.join('')}\n`);
    };
  return {
    debug: environment.ASSAY_DEBUG === 'true' ? say('debug') : () => {},
    info: say('info'),
    warn: say('warn'),
    error: say('error'),
  };
}

function render(value: unknown): string {
  if (value instanceof Error) return JSON.stringify(value.stack ?? value.message);
  if (typeof value === 'string') return /^[\w./:@-]+$/.test(value) ? value : JSON.stringify(value);
  return String(value);
}
