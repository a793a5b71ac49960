// The format of values in JSON, and functions that create the schemas of records for OpenAPI and tests.

export type JsonSchema = { [keyword: string]: unknown };

// Node has JSON.rawJSON, but TypeScript's library does not declare it yet.
const { rawJSON } = JSON as unknown as { rawJSON(text: string): unknown };

/** An exact 64-bit integer in JSON. */
export function wireId(id: bigint): unknown {
  return rawJSON(id.toString());
}

/** JSON with one field on each line. Numbers stay as they are written, because ids may exceed 53 bits. */
export function indentJson(json: string): string {
  const keepNumber = (_: string, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' && context?.source !== undefined ? rawJSON(context.source) : value;
  return JSON.stringify(JSON.parse(json, keepNumber), undefined, 2);
}

/** An id field and its string form; null and empty if there is no id. */
export function idPair<Name extends string>(
  name: Name,
  id: bigint | null,
): Record<Name, unknown> & Record<`${Name}_str`, string> {
  const digits = id?.toString() ?? '';
  const value = id === null ? null : rawJSON(digits);
  // Almost every record has this pair, and computed names take longer.
  const pair: unknown =
    name === 'id' ? { id: value, id_str: digits } : { [name]: value, [`${name}_str`]: digits };
  return pair as ReturnType<typeof idPair<Name>>;
}

/** ISO 8601 with a numeric offset. */
export function wireTime(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '+00:00');
}

export function wireTimeOrNull(ms: number | null): string | null {
  return ms === null ? null : wireTime(ms);
}

export const shape = {
  id: (description = 'A 64-bit id, which may exceed 53 bits; its string form is exact.'): JsonSchema => ({
    type: 'integer',
    format: 'int64',
    description,
  }),
  idString: { type: 'string', pattern: '^[0-9]+$', description: 'The id as a decimal string.' } as JsonSchema,
  string: (description: string): JsonSchema => ({ type: 'string', description }),
  boolean: (description: string): JsonSchema => ({ type: 'boolean', description }),
  integer: (description: string): JsonSchema => ({ type: 'integer', description }),
  number: (description: string): JsonSchema => ({ type: 'number', description }),
  time: (description: string): JsonSchema => ({ type: 'string', format: 'date-time', description }),
  email: (description: string): JsonSchema => ({ type: 'string', description }),
  oneOf: (values: readonly string[], description: string): JsonSchema => ({
    type: 'string',
    enum: values,
    description,
  }),
  nullable: (schema: JsonSchema): JsonSchema => ({
    ...schema,
    type: [schema.type as string, 'null'],
    ...(schema.enum !== undefined && { enum: [...(schema.enum as string[]), null] }),
  }),
  list: (items: JsonSchema): JsonSchema => ({ type: 'array', items }),
};

/** A record with exactly these fields, of which only those in `optional` may be absent. */
export function record(
  title: string,
  properties: Record<string, JsonSchema>,
  optional: readonly string[] = [],
): JsonSchema {
  return {
    title,
    type: 'object',
    properties,
    required: Object.keys(properties).filter(name => !optional.includes(name)),
    additionalProperties: false,
  };
}

/** The id of a record, in both forms. */
export const ids = { id: shape.id(), id_str: shape.idString };

/** The id of another record, in both forms. */
export const idPairShape = (name: string, description: string): Record<string, JsonSchema> => ({
  [name]: shape.id(description),
  [`${name}_str`]: shape.idString,
});

/** The record of every deletion. */
export const destroyedShape = record('Destroyed', { destroyed: shape.boolean('Always true.') });
