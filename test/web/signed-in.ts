// People who are signed in to a test application, each in a browser context of their own.
import type { Browser } from 'playwright-core';
import { hashPassword } from '../../src/domain/secret.ts';
import { createSession, setPassword } from '../../src/store/accounts.ts';
import { SESSION_COOKIE } from '../../src/web/frame/session.ts';
import type { People, TestApp } from '../support/app.ts';
import { launchBrowser, openBrowser, type Person } from '../support/browser.ts';

/** Of everybody in the application. */
export const PASSWORD = 'correct horse battery';

export type SignedIn = {
  browser: Browser;
  /** With a session, and no page yet. The sign-in form would take most of the time of a short test. */
  arrive(options?: Parameters<typeof openBrowser>[2], who?: keyof People): Promise<Person>;
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
      const token = createSession(app.db, app.people[who].account.id, {
        userAgent: await person.page.evaluate<string>('navigator.userAgent'),
        address: '127.0.0.1',
      });
      await person.context.addCookies([
        { name: SESSION_COOKIE, value: token, url: app.url, secure: true, httpOnly: true, sameSite: 'Lax' },
      ]);
      return person;
    },
    close: () => browser.close(),
  };
}
