// What a request may carry, said once: the same definitions validate it and describe it in OpenAPI.

import type { JsonSchema } from '../contract/wire.ts';
import { parseId } from '../domain/id.ts';
import { checkImageName, nameKey } from '../domain/names.ts';
import type { ErrorCode, Errors } from '../domain/refusal.ts';
import type { Sent, SentFields } from './http/body.ts';

export type Field<Value = unknown, Required extends boolean = boolean> = {
  required: Required;
  schema: JsonSchema;
  /** What an optional field becomes when a PUT sends it blank; without it, such a field is left alone. */
  emptied?: Value;
  /** The value, or the code of what is wrong with it. `blank` says that nothing was sent for it. */
  read(sent: Sent): { value: Value } | { code: ErrorCode } | { blank: true };
};
export type Fields = Record<string, Field>;

/** What a handler gets: every field by its name, undefined where an optional one was not sent. */
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
  /** White space, or nothing, is a value like any other. */
  mayBeBlank?: boolean;
};

const EMPTY: string = '';
const NAME_BYTES = 255;
const TEXT_BYTES = 64 * 1024;
const NAME_RULE =
  'Surrounding white space is removed; names that differ only in case or white space are the same.';
const controls = /[\u0000-\u001f\u007f]/;

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
    ...(isValue(EMPTY) && { emptied: EMPTY }),
    read(sent) {
      if (typeof sent !== 'string') return sent === null ? { blank: true } : { code: 'invalid_format' };
      if (!options.mayBeBlank && sent.trim() === '') return { blank: true };
      // JSON can spell half of a surrogate pair, which is no character.
      if (sent.includes('\0') || !sent.isWellFormed() || (!options.multiline && controls.test(sent)))
        return { code: 'invalid_format' };
      if (Buffer.byteLength(sent) > maxBytes) return { code: 'invalid_format' };
      if (!isValue(sent)) return { code: 'invalid_format' };
      const code = options.check?.(sent);
      return code ? { code } : { value: sent };
    },
  };
}

/** What something is called. White space around it is not part of it; NAME_RULE says when two are the same. */
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

/** The image of a suite or a dependency; whether it may be used says `isImageUsable`. */
export const imageField = (doc: string) =>
  optional({
    doc: `${doc} \`host\`, or the name of an imported image; any other is \`not_found\`, unless the setting ANY_IMAGE is on.`,
    check: checkImageName,
  });

/** On or off: `true`, `false`, `1`, `0`. */
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

/** Where a page begins: a blank one would begin the list anew, without end. */
export const cursor = (doc: string): Field<bigint, false> => ({
  required: false,
  schema: idSchema(doc),
  read(sent) {
    const read = readId(sent);
    return 'blank' in read ? { code: 'invalid_format' } : read;
  },
});

/** A whole number within bounds, from the query. */
export function integer(
  doc: string,
  bounds: { least: number; most: number; defaultValue: number },
): Field<number, false> {
  return {
    required: false,
    schema: {
      type: 'integer',
      minimum: bounds.least,
      maximum: bounds.most,
      default: bounds.defaultValue,
      description: doc,
    },
    read(sent) {
      const value = typeof sent === 'string' && /^\d{1,9}$/.test(sent) ? Number(sent) : Number.NaN;
      return value >= bounds.least && value <= bounds.most ? { value } : { code: 'invalid_format' };
    },
  };
}

export const PAGE_LIMIT = { least: 1, most: 1000, defaultValue: 100 };
/** What every list takes that comes in pages. */
export const pageFields = {
  limit: integer('How many at the most.', PAGE_LIMIT),
  before: cursor('Only those older than this id.'),
};

/** A list of ids, `name[]`; one empty element is the empty list. */
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

/** Looks at every field. What is wrong is collected, what is right is there for further checks. `partial`: as PUT does. */
export function readFields<F extends Fields>(
  fields: F,
  sent: SentFields,
  partial = false,
): { values: Partial<Values<F>>; errors: Errors } {
  const values: Record<string, unknown> = {};
  const errors: Errors = {};
  for (const [name, field] of Object.entries(fields)) {
    // A list that was sent as a single value has its name without brackets.
    const sentName = sent.has(name) ? name : name.replace(/\[\]$/, '');
    const isSent = sent.has(sentName);
    const read = isSent ? field.read(sent.get(sentName) as Sent) : { blank: true as const };
    if ('code' in read) errors[name] = [read.code];
    else if ('value' in read) values[name] = read.value;
    else if (field.required && (isSent || !partial)) errors[name] = ['is_blank'];
    else if (isSent && partial && field.emptied !== undefined) values[name] = field.emptied;
  }
  return { values: values as Partial<Values<F>>, errors };
}
