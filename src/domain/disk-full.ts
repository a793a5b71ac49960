// Recognizes the errors by which the system and SQLite report a full disk.

const CODES = new Set<unknown>(['ENOSPC', 'EDQUOT', 'EFBIG', 'SQLITE_FULL']);

export const isDiskFull = (error: unknown): boolean => CODES.has((error as { code?: unknown } | null)?.code);
