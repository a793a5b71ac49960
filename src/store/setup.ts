// The one-time code with which the first visitor becomes the administrator.

import { newReadableSecret } from '../domain/secret.ts';
import { hasAccounts } from './accounts.ts';
import type { Db } from './database/db.ts';

/** The code of this data directory, made at the first start; kept until the administrator is there. */
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

/** Whether `code` still opens the set-up: a wrong one does not use it up, an account does. */
export function isSetUpCode(db: Db, code: string): boolean {
  return !hasAccounts(db) && code.trim().toUpperCase() === getSetUpCode(db);
}

export function deleteSetUpCode(db: Db): void {
  db.write(() => db.sqlite.prepare("DELETE FROM facts WHERE name = 'set_up_code'").run());
}
