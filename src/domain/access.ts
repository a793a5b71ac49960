// Who may do what: callers, their standing and scopes, and what each kind of access requires.

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

/** Who is behind a request. `scopes` undefined means Basic credentials or a page's session: everything. */
export type Caller = {
  accountId: bigint;
  email: string;
  kind: AccountKind;
  admin: boolean;
  standing: Standing;
  scopes: ReadonlySet<string> | undefined;
};

/** An administrator's word counts first; a trial that has ended asks for payment as well. */
export function standingOf(
  account: { standing: Standing; trialEndsAt: number | null },
  nowMs: number,
): Standing {
  if (account.standing !== 'active') return account.standing;
  return account.trialEndsAt !== null && account.trialEndsAt <= nowMs ? 'payment_required' : 'active';
}

/**
 * `anyone`: no credentials. `signed in`: any account. `sees`: whoever can see the resource. `users`: users, of what they own.
 * `administrators`: administrators; from loopback no credentials either.
 */
export type Access = 'anyone' | 'signed in' | 'sees' | 'users' | 'administrators';

/** Steps 2 to 4 of the order of checks: standing and scope of a caller whose credentials were right. */
export function admit(caller: Caller, scope: Scope | undefined): void {
  if (caller.standing === 'suspended') throw refusal('account_suspended');
  if (scope && caller.scopes && !caller.scopes.has(scope)) throw refusal('unauthorized');
}

/** Steps 6 and 7: access, then payment. `ownerId` is the account that the resource belongs to; undefined where there is none yet. */
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
