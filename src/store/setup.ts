// The one-time code with which the first visitor becomes the administrator.

import { newReadableSecret } from '../domain/secret.ts';
import { hasAccounts } from './accounts.ts';
import type { Db } from './database/db.ts';

/** Created at the first start and kept until an account exists. */
export function getSetUpCode(db: Db): string {
  const read = () =>
    db.sqlite.prepare("SELECT value FROM facts WHERE name = 'set_up_code'").pluck().get() as
      | string
      | undefined;
  return (
    read() ??
    db.write(() => {
      const code = newReadableSecret(2).toUpperCase();
      db.sqlite.prepare("INSERT INTO facts (name, value) VALUES ('set_up_code', ?)").run(code);
      return code;
    })
  );
}

/** Whether `code` is valid for the set-up, which ends with the first account. */
export function isSetUpCode(db: Db, code: string): boolean {
  return !hasAccounts(db) && code.trim().toUpperCase() === getSetUpCode(db);
}

export function deleteSetUpCode(db: Db): void {
  db.write(() => db.sqlite.prepare("DELETE FROM facts WHERE name = 'set_up_code'").run());
}
