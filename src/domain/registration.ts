// What an account or an application may be made of and changed to: judged here, once, for the pages and for the command
// line. What only the database knows is added by store/registration.

import { type AccountKind, accountKinds, type Standing, standings } from './access.ts';
import { checkEmail, checkLine, checkRedirectUri } from './names.ts';
import { type ErrorCode, type Errors, Refusal } from './refusal.ts';

export type NewAccount = { email: string; kind: AccountKind; admin: boolean };
export type AccountChange = {
  standing?: Standing;
  kind?: AccountKind;
  /** null: it has no end. */
  trialEndsAt?: number | null;
  admin?: boolean;
};
export type NewApplication = { name: string; redirectUri: string; isPublic: boolean };

export function parseNewAccount(asked: { email: string; kind: string; admin: boolean }): NewAccount {
  const email = asked.email.trim().toLowerCase();
  const kind = oneOf(accountKinds, asked.kind);
  refuseWrong({ email: wrongText(email, checkEmail), kind: kind ? undefined : 'invalid_format' });
  return { email, kind: kind as AccountKind, admin: asked.admin };
}

/** What is left out stays as it is. `never` is no end of the trial. */
export function parseAccountChange(asked: {
  standing?: string | undefined;
  kind?: string | undefined;
  trialEnds?: string | undefined;
  admin?: boolean | undefined;
}): AccountChange {
  const standing = oneOf(standings, asked.standing);
  const kind = oneOf(accountKinds, asked.kind);
  const trialEndsAt = asked.trialEnds === 'never' ? null : parseTime(asked.trialEnds ?? '');
  const wrong = (given: string | undefined, read: unknown) =>
    given !== undefined && read === undefined ? 'invalid_format' : undefined;
  refuseWrong({
    standing: wrong(asked.standing, standing),
    kind: wrong(asked.kind, kind),
    trial_ends: wrong(asked.trialEnds, trialEndsAt),
  });
  return {
    ...(standing && { standing }),
    ...(kind && { kind }),
    ...(trialEndsAt !== undefined && { trialEndsAt }),
    ...(asked.admin !== undefined && { admin: asked.admin }),
  };
}

export function parseNewApplication(asked: {
  name: string;
  redirectUri: string;
  isPublic: boolean;
}): NewApplication {
  const name = asked.name.trim();
  const redirectUri = asked.redirectUri.trim();
  refuseWrong({
    name: wrongText(name, checkLine),
    redirect_uri: wrongText(redirectUri, checkRedirectUri),
  });
  return { name, redirectUri, isPublic: asked.isPublic };
}

const oneOf = <T extends string>(allowed: readonly T[], value: string | undefined): T | undefined =>
  allowed.find(one => one === value);

const wrongText = (text: string, check: (text: string) => ErrorCode | undefined): ErrorCode | undefined =>
  text === '' ? 'is_blank' : check(text);

/** All that is wrong at once. */
function refuseWrong(codes: Record<string, ErrorCode | undefined>): void {
  const errors: Errors = {};
  for (const [field, code] of Object.entries(codes)) if (code) errors[field] = [code];
  if (Object.keys(errors).length > 0) throw new Refusal(403, errors);
}

/** A day, or an ISO 8601 time with its offset; undefined for anything that JavaScript alone would take for one. */
function parseTime(text: string): number | undefined {
  const form = /^(\d{4}-\d\d-\d\d)(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d))?$/;
  const day = Date.parse(form.exec(text)?.[1] ?? '');
  const at = Date.parse(text);
  // The 30th of February would be read as the 2nd of March.
  const exists = !Number.isNaN(day) && text.startsWith(new Date(day).toISOString().slice(0, 10));
  return exists && !Number.isNaN(at) ? at : undefined;
}
