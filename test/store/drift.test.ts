// The migrations create exactly the tables and indexes of the schemas.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { is, type SQL } from 'drizzle-orm';
import { getTableConfig, SQLiteSyncDialect, SQLiteTable } from 'drizzle-orm/sqlite-core';
import type { Db } from '../../src/store/database/db.ts';
import * as dependencySchema from '../../src/store/database/dependency-schema.ts';
import * as resultSchema from '../../src/store/database/result-schema.ts';
import * as schema from '../../src/store/database/schema.ts';
import { openFixture } from './fixture.ts';

const dialect = new SQLiteSyncDialect();
const tables = Object.values({ ...schema, ...dependencySchema, ...resultSchema }).filter(value =>
  is(value, SQLiteTable),
);

type Shape = { columns: unknown[]; primaryKey: string[]; foreignKeys: string[]; indexes: string[] };

/** Ignores white space and quotes in a condition. */
const plain = (condition: string) => condition.replaceAll(/["\s]+/g, ' ').trim();

/** As SQLite stores it. */
const defaultOf = (value: unknown) => {
  if (value == null) return null;
  return typeof value === 'string' ? `'${value}'` : String(Number(value));
};

function declared(table: SQLiteTable): Shape {
  const config = getTableConfig(table);
  const keyColumns = config.columns.filter(column => column.primary).map(column => column.name);
  const composed = config.primaryKeys.flatMap(key => key.columns.map(column => column.name));
  const unique = config.columns.filter(column => column.isUnique).map(column => `unique (${column.name})`);
  return {
    columns: config.columns.map(column => ({
      name: column.name,
      type: column.getSQLType().toUpperCase(),
      notNull: column.notNull,
      default: defaultOf(column.default),
    })),
    primaryKey: [...keyColumns, ...composed],
    foreignKeys: config.foreignKeys
      .map(key => {
        const { columns, foreignColumns, foreignTable } = key.reference();
        const to = `${getTableConfig(foreignTable).name} (${foreignColumns.map(one => one.name).join(', ')})`;
        return `${columns.map(one => one.name).join(', ')} -> ${to} on delete ${key.onDelete ?? 'no action'}`;
      })
      .toSorted(),
    indexes: [
      ...unique,
      ...config.indexes.map(({ config: index }) => {
        const on = index.columns.map(column => ('name' in column ? column.name : '?')).join(', ');
        const where = index.where ? ` where ${plain(dialect.sqlToQuery(index.where as SQL).sql)}` : '';
        return `${index.name} ${index.unique ? 'unique ' : ''}(${on})${where}`;
      }),
    ].toSorted(),
  };
}

type Column = { name: string; type: string; notnull: bigint; dflt_value: string | null; pk: bigint };
type ForeignKey = { id: bigint; table: string; from: string; to: string; on_delete: string };
type Index = { name: string; unique: bigint; origin: string; partial: bigint };

function migrated({ sqlite }: Db, name: string): Shape {
  const columns = sqlite.pragma(`table_info("${name}")`) as Column[];
  const foreignKeys = sqlite.pragma(`foreign_key_list("${name}")`) as ForeignKey[];
  const indexes = sqlite.pragma(`index_list("${name}")`) as Index[];
  const textOf = sqlite.prepare('SELECT sql FROM sqlite_schema WHERE name = ?').pluck();
  return {
    columns: columns.map(column => ({
      name: column.name,
      type: column.type,
      notNull: column.notnull === 1n,
      default: column.dflt_value,
    })),
    primaryKey: columns
      .filter(column => column.pk > 0n)
      .toSorted((a, b) => Number(a.pk - b.pk))
      .map(column => column.name),
    foreignKeys: foreignKeys
      .map(key => `${key.from} -> ${key.table} (${key.to}) on delete ${key.on_delete.toLowerCase()}`)
      .toSorted(),
    indexes: indexes
      .filter(index => index.origin !== 'pk')
      .map(index => {
        const on = (sqlite.pragma(`index_info("${index.name}")`) as { name: string }[])
          .map(column => column.name)
          .join(', ');
        if (index.origin === 'u') return `unique (${on})`;
        const [, where] = / WHERE (.*)$/s.exec(textOf.get(index.name) as string) ?? [];
        return `${index.name} ${index.unique ? 'unique ' : ''}(${on})${where ? ` where ${plain(where)}` : ''}`;
      })
      .toSorted(),
  };
}

test('the migrations create exactly the tables of the schema', () => {
  using fixture = openFixture();
  const made = fixture.db.sqlite
    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
    .pluck()
    .all();
  assert.deepEqual(made, tables.map(table => getTableConfig(table).name).toSorted());
});

for (const table of tables) {
  const { name } = getTableConfig(table);
  test(`${name} matches the schema: columns, keys, references, indexes`, () => {
    using fixture = openFixture();
    const expected = declared(table);
    const made = migrated(fixture.db, name);
    const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
    assert.deepEqual(
      (made.columns as { name: string }[]).toSorted(byName),
      (expected.columns as { name: string }[]).toSorted(byName),
    );
    assert.deepEqual({ ...made, columns: 0 }, { ...expected, columns: 0 });
  });

  test(`${name} is strict: it accepts no value of another type`, () => {
    using fixture = openFixture();
    const [row] = fixture.db.sqlite.pragma(`table_list("${name}")`) as { strict: bigint }[];
    assert.equal(row?.strict, 1n);
  });
}

test('every reference to another table has an index that begins with it, so that deletes need no scan', () => {
  using fixture = openFixture();
  const small = new Set(['sessions', 'sign_in_links', 'authorization_codes']);
  for (const table of tables) {
    const { name } = getTableConfig(table);
    if (small.has(name)) continue;
    const { foreignKeys, indexes, primaryKey } = migrated(fixture.db, name);
    const leading = [primaryKey[0], ...indexes.map(index => /\(([a-z_]+)/.exec(index)?.[1])];
    for (const key of foreignKeys) {
      const [column = ''] = key.split(' ');
      assert.ok(leading.includes(column), `${name}.${column}`);
    }
  }
});
