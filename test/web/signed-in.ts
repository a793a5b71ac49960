// People who are signed in to a test application, each in a browser context of their own.
import type { Browser } from 'playwright-core';
import { hashPassword } from '../../src/domain/secret.ts';
import { setPassword } from '../../src/store/accounts.ts';
import type { TestApp } from '../support/app.ts';
import { launchBrowser, openBrowser, type Person, signIn } from '../support/browser.ts';

/** Of everybody in the application. */
export const PASSWORD = 'correct horse battery';

export type SignedIn = {
  browser: Browser;
  arrive(options?: Parameters<typeof openBrowser>[2], who?: string): Promise<Person>;
  close(): Promise<void>;
};

export async function launchSignedIn(app: TestApp): Promise<SignedIn> {
  const passwordHash = await hashPassword(PASSWORD);
  for (const { account } of Object.values(app.people)) setPassword(app.db, account.id, passwordHash);
  const browser = await launchBrowser();
  return {
    browser,
    async arrive(options = {}, who = 'owner') {
      const person = await openBrowser(browser, app.url, options);
      await signIn(person, `${who}@example.org`, PASSWORD);
      return person;
    },
    close: () => browser.close(),
  };
}
