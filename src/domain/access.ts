// Authorization: callers, their account standing and OAuth scopes, and what each kind of access requires.

import { refusal } from './refusal.ts';

export const scopes = [
  'user',
  'projects',
  'build_requests',
  'build_requests_create',
  'commits',
  'suites',
  'dependencies',
  'deploys',
  'notifications',
] as const;
export type Scope = (typeof scopes)[number];

export const accountKinds = ['user', 'collaborator'] as const;
export type AccountKind = (typeof accountKinds)[number];

export const standings = ['active', 'suspended', 'payment_required'] as const;
export type Standing = (typeof standings)[number];

/** The account that sent a request. `scopes` is undefined for Basic credentials and page sessions: everything is allowed. */
export type Caller = {
  accountId: bigint;
  email: string;
  kind: AccountKind;
  admin: boolean;
  standing: Standing;
  scopes: ReadonlySet<string> | undefined;
};

/** What an administrator set takes precedence. An active account whose trial has ended must pay. */
export function standingOf(
  account: { standing: Standing; trialEndsAt: number | null },
  nowMs: number,
): Standing {
  if (account.standing !== 'active') return account.standing;
  return account.trialEndsAt !== null && account.trialEndsAt <= nowMs ? 'payment_required' : 'active';
}

/**
 * `anyone`: no credentials needed. `signature`: the handler verifies the sender by a signature. `signed in`: any account. `sees`: any account that can see the resource. `users`: an
 * account of kind `user` that owns the resource. `administrators`: administrators, and callers on loopback without credentials.
 */
export type Access = 'anyone' | 'signature' | 'signed in' | 'sees' | 'users' | 'administrators';

/** Checks the standing and the scope of an authenticated caller. Runs before the resource is looked up. */
export function admit(caller: Caller, scope: Scope | undefined): void {
  if (caller.standing === 'suspended') throw refusal('account_suspended');
  if (scope && caller.scopes && !caller.scopes.has(scope)) throw refusal('unauthorized');
}

/** Checks access, then payment. `ownerId` is the owner of the resource, or undefined if the request creates it. */
export function authorize(
  caller: Caller,
  access: Access,
  ownerId: bigint | undefined,
  unpaid: 'allowed' | 'refused',
): void {
  const owns = ownerId === undefined || ownerId === caller.accountId;
  if (access === 'administrators' && !caller.admin) throw refusal('unauthorized');
  if (access === 'users' && !(caller.kind === 'user' && owns)) throw refusal('unauthorized');
  if (unpaid === 'refused' && owns && caller.standing === 'payment_required')
    throw refusal('payment_required');
}
