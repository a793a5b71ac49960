// How a full disk is told, by the system and by SQLite.

const CODES = new Set<unknown>(['ENOSPC', 'EDQUOT', 'EFBIG', 'SQLITE_FULL']);

export const isDiskFull = (cause: unknown): boolean => CODES.has((cause as { code?: unknown } | null)?.code);
