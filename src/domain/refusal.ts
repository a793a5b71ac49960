// Refusals: the error codes of the API and their HTTP statuses. Any layer throws them; api/router renders them.

const statusOf = {
  api_does_not_exists: 400,
  unauthorized: 401,
  account_suspended: 401,
  payment_required: 402,
  already_exists: 403,
  is_blank: 403,
  invalid_format: 403,
  resource_temporary_unavailable: 403,
  is_reserved: 403,
  not_found: 404,
} as const;

export type ErrorCode = keyof typeof statusOf;
type ErrorStatus = (typeof statusOf)[ErrorCode];
export type Errors = Record<string, ErrorCode[]>;

export const errorCodes = Object.keys(statusOf) as ErrorCode[];

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
  return new Refusal(statusOf[code], { [key]: [code] });
}
