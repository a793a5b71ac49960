// How values look on the wire, and the small language in which records say their shape, for OpenAPI and for tests.

export type JsonSchema = { [keyword: string]: unknown };

// In the runtime and not yet in the compiler's library.
const { rawJSON } = JSON as unknown as { rawJSON(text: string): unknown };

/** A 64-bit integer in the JSON text, bit-exact. */
export function wireId(id: bigint): unknown {
  return rawJSON(id.toString());
}

/** An id field and its string twin; null and empty while there is none. */
export function twin<Name extends string>(
  name: Name,
  id: bigint | null,
): Record<Name, unknown> & Record<`${Name}_str`, string> {
  const digits = id?.toString() ?? '';
  return { [name]: id === null ? null : rawJSON(digits), [`${name}_str`]: digits } as ReturnType<
    typeof twin<Name>
  >;
}

/** ISO 8601 with an offset, as the specification wants it. */
export function wireTime(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '+00:00');
}

export function wireTimeOrNull(ms: number | null): string | null {
  return ms === null ? null : wireTime(ms);
}

export const shape = {
  id: (
    description = 'A 64-bit id: it may exceed 53 bits, its string twin carries it exactly.',
  ): JsonSchema => ({
    type: 'integer',
    format: 'int64',
    description,
  }),
  idString: { type: 'string', pattern: '^[0-9]+$', description: 'The id as a decimal string.' } as JsonSchema,
  string: (description: string): JsonSchema => ({ type: 'string', description }),
  boolean: (description: string): JsonSchema => ({ type: 'boolean', description }),
  integer: (description: string): JsonSchema => ({ type: 'integer', description }),
  time: (description: string): JsonSchema => ({ type: 'string', format: 'date-time', description }),
  email: (description: string): JsonSchema => ({ type: 'string', description }),
  oneOf: (values: readonly string[], description: string): JsonSchema => ({
    type: 'string',
    enum: values,
    description,
  }),
  nullable: (schema: JsonSchema): JsonSchema => ({ ...schema, type: [schema.type as string, 'null'] }),
  list: (items: JsonSchema): JsonSchema => ({ type: 'array', items }),
};

/** A record whose fields are all there, but for those named in `optional`, and no others. */
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
