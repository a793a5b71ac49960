// Column types, and columns that many tables have. The driver returns every integer as a bigint so that ids stay exact; the
// types convert it to what it means.

import { customType, text } from 'drizzle-orm/sqlite-core';

/** A 64-bit id. */
export const int64 = customType<{ data: bigint; driverData: bigint }>({ dataType: () => 'integer' });

/** A whole number below 2^53. */
export const int = customType<{ data: number; driverData: bigint }>({
  dataType: () => 'integer',
  fromDriver: Number,
  toDriver: value => BigInt(value),
});

/** Milliseconds since 1970. */
export const instant = int;

export const bool = customType<{ data: boolean; driverData: bigint }>({
  dataType: () => 'integer',
  fromDriver: value => value !== 0n,
  toDriver: value => (value ? 1n : 0n),
});

/** Bytes in an internal format. */
export const packed = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'blob' });

/** Encrypted by the vault. */
export const sealed = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'blob' });

/** The SHA-256 of a secret that is not stored. */
export const digest = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'blob' });

export const id = () => int64('id').primaryKey();
/** Null if an older row had the same key when keys were introduced. Renaming the row sets it. */
export const nameKey = () => text('name_key');
export const createdAt = () => instant('created_at').notNull();
