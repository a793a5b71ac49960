// The kinds of request fields. The same definition validates a field and describes it in OpenAPI.

import type { JsonSchema } from '../contract/wire.ts';
import { parseId } from '../domain/id.ts';
import { checkImageName, nameKey } from '../domain/names.ts';
import type { ErrorCode, Errors } from '../domain/refusal.ts';
import type { Sent, SentFields } from './http/body.ts';

export type Field<Value = unknown, Required extends boolean = boolean> = {
  required: Required;
  schema: JsonSchema;
  /** Whether the example of a POST shows it although it is optional. */
  inExample?: boolean;
  /** The value of an optional field that a PUT sends blank. Without it, the field stays unchanged. */
  blankValue?: Value;
  /** The value, an error code, or `blank` if nothing was sent. */
  read(sent: Sent): { value: Value } | { code: ErrorCode } | { blank: true };
};
export type Fields = Record<string, Field>;

/** What a handler gets: the values by field name. An optional field that was not sent is undefined. */
export type Values<F extends Fields> = {
  [Name in keyof F]: F[Name] extends Field<infer Value, infer Required>
    ? Required extends true
      ? Value
      : Value | undefined
    : never;
};

type TextOptions<Value extends string = string> = {
  doc: string;
  example?: string;
  oneOf?: readonly Value[];
  check?: (value: string) => ErrorCode | undefined;
  maxBytes?: number;
  /** Names are one line; commands and descriptions are not. */
  multiline?: boolean;
  /** Whether an empty value or white space is accepted as it is. */
  mayBeBlank?: boolean;
  inExample?: boolean;
};

const EMPTY: string = '';
const NAME_BYTES = 255;
const TEXT_BYTES = 64 * 1024;
const NAME_RULE =
  'Surrounding white space is removed; names that differ only in case or white space are the same.';
const CONTROL_CHARACTERS = /[\u0000-\u001f\u007f]/;

function makeText<Value extends string, Required extends boolean>(
  required: Required,
  options: TextOptions<Value>,
): Field<Value, Required> {
  const isValue = (text: string): text is Value => !options.oneOf || options.oneOf.includes(text as Value);
  const maxBytes = options.maxBytes ?? (options.multiline ? TEXT_BYTES : NAME_BYTES);
  return {
    required,
    schema: {
      type: 'string',
      description: options.doc,
      ...(options.oneOf && { enum: options.oneOf }),
      ...(options.example !== undefined && { examples: [options.example] }),
      maxLength: maxBytes,
    },
    ...(options.inExample && { inExample: true }),
    ...(isValue(EMPTY) && { blankValue: EMPTY }),
    read(sent) {
      if (typeof sent !== 'string') return sent === null ? { blank: true } : { code: 'invalid_format' };
      if (!options.mayBeBlank && sent.trim() === '') return { blank: true };
      // JSON can encode half of a surrogate pair.
      if (
        sent.includes('\0') ||
        !sent.isWellFormed() ||
        (!options.multiline && CONTROL_CHARACTERS.test(sent))
      )
        return { code: 'invalid_format' };
      if (Buffer.byteLength(sent) > maxBytes) return { code: 'invalid_format' };
      if (!isValue(sent)) return { code: 'invalid_format' };
      const code = options.check?.(sent);
      return code ? { code } : { value: sent };
    },
  };
}

/** A name, trimmed. NAME_RULE says when two names are the same. */
export function requiredName(options: Pick<TextOptions, 'doc' | 'example'>): Field<string, true> {
  const text = makeText(true, { ...options, doc: `${options.doc} ${NAME_RULE}` });
  return {
    ...text,
    read: sent =>
      typeof sent !== 'string'
        ? text.read(sent)
        : nameKey(sent) === ''
          ? { blank: true }
          : text.read(sent.trim()),
  };
}

export const required = <Value extends string>(options: TextOptions<Value>): Field<Value, true> =>
  makeText(true, options);
export const optional = <Value extends string>(options: TextOptions<Value>): Field<Value, false> =>
  makeText(false, options);

/** The image of a suite or a dependency. `findMissingImage` checks that it exists. */
export const imageField = (doc: string) =>
  optional({
    doc: `${doc} \`host\`, or the name of an imported image; any other is \`not_found\` unless the setting ANY_IMAGE is on.`,
    check: checkImageName,
  });

/** A boolean: `true`, `false`, `1` or `0`. */
export function flag(doc: string): Field<boolean, false> {
  return {
    required: false,
    schema: { type: 'boolean', description: doc },
    read(sent) {
      if (sent === true || sent === 'true' || sent === '1') return { value: true };
      if (sent === false || sent === 'false' || sent === '0') return { value: false };
      return sent === null || sent === '' ? { blank: true } : { code: 'invalid_format' };
    },
  };
}

/** A whole number in a range. */
export function wholeNumber(doc: string, min: number, max: number): Field<number, false> {
  return {
    required: false,
    schema: { type: 'integer', minimum: min, maximum: max, description: doc },
    read(sent) {
      if (sent === null || sent === '') return { blank: true };
      const value = /^\d{1,15}$/.test(String(sent)) ? Number(sent) : Number.NaN;
      return value >= min && value <= max ? { value } : { code: 'invalid_format' };
    },
  };
}

/** A date, or a time with its offset; in milliseconds. */
export function time(doc: string): Field<number, false> {
  return {
    required: false,
    schema: { type: 'string', description: doc, examples: ['2027-01-31'] },
    read(sent) {
      if (sent === null || sent === '') return { blank: true };
      const isTime =
        typeof sent === 'string' &&
        /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d))?$/.test(sent);
      const value = isTime ? Date.parse(sent) : Number.NaN;
      return Number.isNaN(value) ? { code: 'invalid_format' } : { value };
    },
  };
}

/** The id of a record to select by. */
export const optionalId = (doc: string): Field<bigint, false> => ({
  required: false,
  schema: idSchema(doc),
  read: readId,
});

const idSchema = (doc: string): JsonSchema => ({
  oneOf: [
    { type: 'integer', format: 'int64' },
    { type: 'string', pattern: '^[0-9]+$' },
  ],
  description: doc,
});

function readId(sent: Sent): ReturnType<Field<bigint>['read']> {
  if (typeof sent === 'string' && sent.trim() === '') return { blank: true };
  const id =
    typeof sent === 'bigint'
      ? parseId(sent.toString())
      : typeof sent === 'string'
        ? parseId(sent)
        : undefined;
  if (id !== undefined) return { value: id };
  return sent === null ? { blank: true } : { code: 'invalid_format' };
}

export const requiredId = (doc: string): Field<bigint, true> => ({
  required: true,
  schema: idSchema(doc),
  read: readId,
});

/** The start of a page. A blank cursor is refused: a client that sends one would read the first page forever. */
export const cursor = (doc: string): Field<bigint, false> => ({
  required: false,
  schema: idSchema(doc),
  read(sent) {
    const read = readId(sent);
    return 'blank' in read ? { code: 'invalid_format' } : read;
  },
});

export const PAGE_LIMIT = { min: 1, max: 1000, defaultValue: 100 };
const limit: Field<number, false> = {
  required: false,
  schema: {
    type: 'integer',
    minimum: PAGE_LIMIT.min,
    maximum: PAGE_LIMIT.max,
    default: PAGE_LIMIT.defaultValue,
    description: 'Maximum number of items.',
  },
  read(sent) {
    const value = typeof sent === 'string' && /^\d{1,9}$/.test(sent) ? Number(sent) : Number.NaN;
    return value >= PAGE_LIMIT.min && value <= PAGE_LIMIT.max ? { value } : { code: 'invalid_format' };
  },
};
/** The query fields of every paged list. */
export const pageFields = { limit, before: cursor('Only items older than this id.') };

/** A list of ids, `name[]`. A single empty element means an empty list. */
export function ids(doc: string): Field<bigint[], false> {
  return {
    required: false,
    schema: { type: 'array', items: idSchema('An id.'), description: doc },
    read(sent) {
      if (sent === null || sent === '') return { blank: true };
      if (!Array.isArray(sent)) return { code: 'invalid_format' };
      const value: bigint[] = [];
      for (const one of sent) {
        const read = readId(one);
        if ('code' in read) return read;
        if ('value' in read) value.push(read.value);
        else if (sent.length > 1) return { code: 'invalid_format' };
      }
      return { value };
    },
  };
}

/** Validates every field, and returns valid values and errors. With `partial`, as for PUT, required fields may be missing. */
export function readFields<F extends Fields>(
  fields: F,
  sent: SentFields,
  partial = false,
): { values: Partial<Values<F>>; errors: Errors } {
  const values: Record<string, unknown> = {};
  const errors: Errors = {};
  for (const [name, field] of Object.entries(fields)) {
    // A list that was sent as a single value has no brackets in its name.
    const sentName = sent.has(name) ? name : name.replace(/\[\]$/, '');
    const isSent = sent.has(sentName);
    const read = isSent ? field.read(sent.get(sentName) as Sent) : { blank: true as const };
    if ('code' in read) errors[name] = [read.code];
    else if ('value' in read) values[name] = read.value;
    else if (field.required && (isSent || !partial)) errors[name] = ['is_blank'];
    else if (isSent && partial && field.blankValue !== undefined) values[name] = field.blankValue;
  }
  return { values: values as Partial<Values<F>>, errors };
}
