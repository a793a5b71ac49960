// Sessions of the web interface: their cookie, sign-in by password, CSRF protection, and flash messages.

import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { addressOf } from '../../api/http/caller-address.ts';
import { hashPassword, verifyPassword } from '../../domain/secret.ts';
import {
  type Account,
  createSession,
  deleteSession,
  findAccountByEmail,
  findSession,
} from '../../store/accounts.ts';
import type { Db } from '../../store/database/db.ts';

export const SESSION_COOKIE = '__Host-assay-session';
const FLASH_COOKIE = '__Host-assay-flash';
const SESSION_LIFETIME_S = 30 * 24 * 3600;
const FLASH_LIFETIME_S = 60;
export const PASSWORD_LENGTH = { least: 8, most: 1024 };

export type Session = { account: Account; token: string; csrf: string };

function readCookie(request: Request, name: string): string | undefined {
  for (const pair of (request.headers.get('cookie') ?? '').split(';')) {
    const equals = pair.indexOf('=');
    if (equals > 0 && pair.slice(0, equals).trim() === name) return pair.slice(equals + 1).trim();
  }
  return undefined;
}

const cookie = (name: string, value: string, lifetimeS: number) =>
  `${name}=${value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=${lifetimeS}`;

/** Derived from the session token, which only the cookie holds. */
const formKeyOf = (token: string) => createHmac('sha256', token).update('form').digest();

const xor = (a: Buffer, b: Buffer) => Buffer.from(a.map((byte, at) => byte ^ (b[at] as number)));

/**
 * The session of a request. Its CSRF token is the session's form key, masked differently for each response: pages are
 * compressed, and the sizes of many with the same token could reveal it to somebody who can change other text on them.
 */
export function readSession(db: Db, request: Request): Session | undefined {
  const token = readCookie(request, SESSION_COOKIE);
  const account = token === undefined ? undefined : findSession(db, token);
  if (!account || token === undefined) return undefined;
  const formKey = formKeyOf(token);
  const mask = randomBytes(formKey.length);
  return { account, token, csrf: Buffer.concat([mask, xor(mask, formKey)]).toString('base64url') };
}

/** The request of somebody who signs in. */
type SignIn = {
  request: Request;
  outgoing: ServerResponse;
  services: Parameters<typeof addressOf>[1] & { db: Db };
};

/** Starts a session, ends the browser's previous one, and returns the cookie to set. */
export function beginSession({ request, services, outgoing }: SignIn, account: Account): string {
  const { db } = services;
  const previous = readCookie(request, SESSION_COOKIE);
  if (previous !== undefined) deleteSession(db, previous);
  const token = createSession(db, account.id, {
    userAgent: request.headers.get('user-agent') ?? '',
    address: addressOf(outgoing, services),
  });
  return cookie(SESSION_COOKIE, token, SESSION_LIFETIME_S);
}

export function endSession(db: Db, session: Session): string {
  deleteSession(db, session.token);
  return cookie(SESSION_COOKIE, '', 0);
}

let dummyHash: Promise<string> | undefined;

/** The account with this email and password. An unknown email takes as long, so that timing does not reveal which exist. */
export async function findByPassword(db: Db, email: string, password: string): Promise<Account | undefined> {
  if (password.length > PASSWORD_LENGTH.most) return undefined;
  const account = findAccountByEmail(db, email.trim());
  dummyHash ??= hashPassword('nobody');
  const isRight = await verifyPassword(password, account?.passwordHash ?? (await dummyHash));
  return isRight && account?.passwordHash != null ? account : undefined;
}

/**
 * Whether a POST comes from one of our own pages, according to the browser's headers. Every browser sends Origin with
 * a form, so a client that sends neither header is not a browser that another site could misuse.
 */
export function isOwnOrigin(request: Request, url: URL, baseUrl: string): boolean {
  const site = request.headers.get('sec-fetch-site');
  if (site !== null && site !== 'same-origin') return false;
  const origin = request.headers.get('origin');
  return origin === null || origin === url.origin || origin === new URL(baseUrl).origin;
}

export function isFormToken(session: Session, sent: unknown): boolean {
  if (typeof sent !== 'string') return false;
  const formKey = formKeyOf(session.token);
  const bytes = Buffer.from(sent, 'base64url');
  if (bytes.length !== 2 * formKey.length) return false;
  const mask = bytes.subarray(0, formKey.length);
  return timingSafeEqual(xor(mask, bytes.subarray(formKey.length)), formKey);
}

/** A message that the next page shows once. */
export const flashCookie = (message: string) =>
  cookie(FLASH_COOKIE, Buffer.from(message).toString('base64url'), FLASH_LIFETIME_S);

export const noFlashCookie = cookie(FLASH_COOKIE, '', 0);

export const readFlash = (request: Request) =>
  Buffer.from(readCookie(request, FLASH_COOKIE) ?? '', 'base64url').toString();

/** A path of this site to continue to after signing in; the front page for anything else. */
export function localPath(next: string | null | undefined): string {
  const base = 'https://assay.invalid';
  const url = next?.startsWith('/') && !/[\\\u0000-\u001f]/.test(next) ? URL.parse(next, base) : null;
  const isOurs = url?.origin === base && /^\/(ui|oauth2)(\/|$)/.test(url.pathname);
  return url && isOurs ? `${url.pathname}${url.search}` : '/ui';
}
