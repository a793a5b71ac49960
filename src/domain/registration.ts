// Validates new accounts, changes to accounts, and new applications, for both the pages and the command line.
// store/registration adds the checks that need the database.

import { type AccountKind, accountKinds, type Standing, standings } from './access.ts';
import { checkEmail, checkLine, checkRedirectUri } from './names.ts';
import { type ErrorCode, type Errors, Refusal } from './refusal.ts';
import { type Theme, themes } from './theme.ts';
import { checkTimeZone } from './trigger/cron.ts';

export type NewAccount = { email: string; kind: AccountKind; admin: boolean };
export type AccountChange = {
  standing?: Standing;
  kind?: AccountKind;
  /** null: the trial never ends. */
  trialEndsAt?: number | null;
  admin?: boolean;
};
type NewApplication = { name: string; redirectUri: string; isPublic: boolean };

export function parseNewAccount(input: { email: string; kind: string; admin: boolean }): NewAccount {
  const email = input.email.trim().toLowerCase();
  const kind = oneOf(accountKinds, input.kind);
  refuseInvalid({ email: checkText(email, checkEmail), kind: kind ? undefined : 'invalid_format' });
  return { email, kind: kind as AccountKind, admin: input.admin };
}

/** Omitted fields stay unchanged. `trialEnds` may be `never`. */
export function parseAccountChange(input: {
  standing?: string | undefined;
  kind?: string | undefined;
  trialEnds?: string | undefined;
  admin?: boolean | undefined;
}): AccountChange {
  const standing = oneOf(standings, input.standing);
  const kind = oneOf(accountKinds, input.kind);
  const trialEndsAt = input.trialEnds === 'never' ? null : parseTime(input.trialEnds ?? '');
  const invalid = (text: string | undefined, parsed: unknown) =>
    text !== undefined && parsed === undefined ? 'invalid_format' : undefined;
  refuseInvalid({
    standing: invalid(input.standing, standing),
    kind: invalid(input.kind, kind),
    trial_ends: invalid(input.trialEnds, trialEndsAt),
  });
  return {
    ...(standing && { standing }),
    ...(kind && { kind }),
    ...(trialEndsAt !== undefined && { trialEndsAt }),
    ...(input.admin !== undefined && { admin: input.admin }),
  };
}

/** How pages are shown to an account. An empty time zone is the one of the browser. */
export function parseDisplay(input: { theme: string; timeZone: string }): {
  theme: Theme;
  timeZone: string;
} {
  const theme = oneOf(themes, input.theme);
  const timeZone = input.timeZone.trim();
  refuseInvalid({
    theme: theme ? undefined : 'invalid_format',
    time_zone: timeZone === '' ? undefined : checkTimeZone(timeZone),
  });
  return { theme: theme as Theme, timeZone };
}

export function parseNewApplication(input: {
  name: string;
  redirectUri: string;
  isPublic: boolean;
}): NewApplication {
  const name = input.name.trim();
  const redirectUri = input.redirectUri.trim();
  refuseInvalid({
    name: checkText(name, checkLine),
    redirect_uri: checkText(redirectUri, checkRedirectUri),
  });
  return { name, redirectUri, isPublic: input.isPublic };
}

const oneOf = <T extends string>(allowed: readonly T[], value: string | undefined): T | undefined =>
  allowed.find(item => item === value);

const checkText = (text: string, check: (text: string) => ErrorCode | undefined): ErrorCode | undefined =>
  text === '' ? 'is_blank' : check(text);

/** Reports every invalid field in one refusal. */
function refuseInvalid(codes: Record<string, ErrorCode | undefined>): void {
  const errors: Errors = {};
  for (const [field, code] of Object.entries(codes)) if (code) errors[field] = [code];
  if (Object.keys(errors).length > 0) throw new Refusal(403, errors);
}

/** A day, or an ISO 8601 time with an offset. Date.parse alone accepts far more. */
function parseTime(text: string): number | undefined {
  const form = /^(\d{4}-\d\d-\d\d)(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d))?$/;
  const day = Date.parse(form.exec(text)?.[1] ?? '');
  const at = Date.parse(text);
  // Date.parse reads February 30 as March 2.
  const exists = !Number.isNaN(day) && text.startsWith(new Date(day).toISOString().slice(0, 10));
  return exists && !Number.isNaN(at) ? at : undefined;
}
