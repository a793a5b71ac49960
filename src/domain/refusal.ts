// Refusals: the error codes of the API and their HTTP statuses. Any layer throws them; api/router renders them.

/** Every code with its status and its meaning, as the manual and the API reference show them. */
export const errorTable = {
  api_does_not_exists: [
    400,
    'This endpoint does not exist. Check the method and the path; a trailing slash counts.',
  ],
  unauthorized: [
    401,
    'The credentials are missing or wrong, the token lacks the scope, or your account is not allowed to do this.',
  ],
  account_suspended: [401, 'An administrator suspended the account.'],
  payment_required: [402, 'The account needs payment. It can still work on projects of others.'],
  already_exists: [403, 'The value must be unique.'],
  is_blank: [403, 'A required field is missing or blank.'],
  invalid_format: [403, 'The value cannot be used.'],
  resource_temporary_unavailable: [403, 'Not possible right now. Try again later.'],
  is_reserved: [403, 'The value belongs to the system, or the record is in use.'],
  not_found: [
    404,
    'The record does not exist, or you cannot see it. With the name of a field: the record that the field names.',
  ],
} as const satisfies Record<string, readonly [status: number, meaning: string]>;

export type ErrorCode = keyof typeof errorTable;
type ErrorStatus = (typeof errorTable)[ErrorCode][0];
export type Errors = Record<string, ErrorCode[]>;

export const errorCodes = Object.keys(errorTable) as ErrorCode[];

/** What is shown to the caller as it is. Any other error is a defect, which is logged. */
export class ExpectedError extends Error {}

export class Refusal extends ExpectedError {
  readonly status: ErrorStatus;
  readonly errors: Errors;

  constructor(status: ErrorStatus, errors: Errors) {
    super(
      Object.entries(errors)
        .map(([key, codes]) => `${key}: ${codes.join(', ')}`)
        .join('; '),
    );
    this.status = status;
    this.errors = errors;
  }
}

/** A refusal with one code for one field, or for `generic`. */
export function refusal(code: ErrorCode, key = 'generic'): Refusal {
  return new Refusal(errorTable[code][0], { [key]: [code] });
}
