// The server's log: a constant message and fields. Never log a secret, a key or a URL that contains a token.

export type Log = {
  debug(message: string, fields?: Record<string, unknown>): void;
  info(message: string, fields?: Record<string, unknown>): void;
  warn(message: string, fields?: Record<string, unknown>): void;
  error(message: string, fields?: Record<string, unknown>): void;
};

const levels = { debug: 7, info: 6, warn: 4, error: 3 } as const;

/** Under journald a line starts with its level and has no time, because the journal records both. */
export function createLog(
  write: (line: string) => void = line => process.stderr.write(line),
  environment: NodeJS.ProcessEnv = process.env,
): Log {
  const journald = environment.JOURNAL_STREAM !== undefined;
  const logAt =
    (level: keyof typeof levels) =>
    (message: string, fields: Record<string, unknown> = {}) => {
      const rendered = Object.entries(fields).map(([name, value]) => ` ${name}=${render(value)}`);
      const head = journald ? `<${levels[level]}>` : `${new Date().toISOString()} ${level} `;
      write(`${head}${message}${rendered.join('')}\n`);
    };
  return {
    debug: environment.ASSAY_DEBUG === 'true' ? logAt('debug') : () => {},
    info: logAt('info'),
    warn: logAt('warn'),
    error: logAt('error'),
  };
}

function render(value: unknown): string {
  if (value instanceof Error) return JSON.stringify(value.stack ?? value.message);
  if (typeof value === 'string') return /^[\w./:@-]+$/.test(value) ? value : JSON.stringify(value);
  return String(value);
}
