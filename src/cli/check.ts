// A line of `assay doctor`: what was found, whether it is good enough, and how to fix it.

export type Check = { name: string; status: 'ok' | 'warn' | 'fail'; found: string; fix?: string };
export type Finding = Omit<Check, 'name'>;

export const ok = (found: string): Finding => ({ status: 'ok', found });
export const warn = (found: string, fix: string): Finding => ({ status: 'warn', found, fix });
export const fail = (found: string, fix: string): Finding => ({ status: 'fail', found, fix });

export const isOlder = (version: string, minimum: string) =>
  version.localeCompare(minimum, 'en', { numeric: true }) < 0;
