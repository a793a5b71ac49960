// The tables of dependencies: their artifacts, what they relate to, which suites use them, and versions that accounts keep.

import { sql } from 'drizzle-orm';
import { index, primaryKey, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core';
import { type CompileState, LAUNCH_SECONDS } from '../../domain/dependency.ts';
import { bool, createdAt, id, instant, int, int64, nameKey } from './columns.ts';
import { accounts, suites } from './schema.ts';
import { unfinished } from './unfinished.ts';

export const artifacts = sqliteTable('artifacts', {
  /** SHA-256 of prefix and content in hex. Timestamps are not included. */
  hash: text('hash').primaryKey(),
  /** The prefix it was compiled for. It works nowhere else. */
  prefix: text('prefix').notNull(),
  sizeBytes: int('size_bytes').notNull(),
  /** Null for artifacts that were kept before files were counted. */
  files: int('files'),
  /** The Docker volume that holds all of it. Docker may have lost it since. */
  volume: text('volume'),
  createdAt: createdAt(),
});

export const dependencies = sqliteTable(
  'dependencies',
  {
    id: id(),
    ownerId: int64('owner_id')
      .notNull()
      .references(() => accounts.id),
    name: text('name').notNull(),
    nameKey: nameKey(),
    description: text('description').notNull(),
    command: text('command').notNull(),
    prefix: text('prefix').notNull(),
    source: text('source').notNull(),
    launchCommand: text('launch_command').notNull(),
    /** How long the launch command may take. */
    launchSeconds: int('launch_seconds').notNull().default(LAUNCH_SECONDS.defaultValue),
    /** Variables for its users: lines of NAME=value, in which $PREFIX is the prefix. */
    environment: text('environment').notNull().default(''),
    /** Whether its libraries are on LD_LIBRARY_PATH. */
    libraryPath: bool('library_path').notNull().default(true),
    /** Whether it is compiled again when the artifact of a related dependency changes. */
    recompile: bool('recompile').notNull().default(false),
    image: text('image'),
    compileState: text('compile_state').$type<CompileState>().notNull(),
    shared: bool('shared').notNull(),
    archiveHash: text('archive_hash'),
    archiveContentType: text('archive_content_type'),
    archiveFileSize: int('archive_file_size'),
    /** The artifact and the recipe of the last successful compile. */
    artifactHash: text('artifact_hash').references(() => artifacts.hash),
    recipeHash: text('recipe_hash'),
    /** The artifacts of related dependencies in that compile, as a JSON list of hashes; null if it is not known. */
    relatedArtifacts: text('related_artifacts'),
    /** The steps of the last successful compile that was not a reuse, and how long each took, as JSON; null if there is none. */
    compileSteps: text('compile_steps'),
    /** The steps of the current or last compile and when each began, as JSON; null if none has begun. */
    stepsBegun: text('steps_begun'),
    /** Whether the next compile ignores earlier ones with the same recipe. */
    forced: bool('forced').notNull().default(false),
    error: text('error'),
    attempts: int('attempts').notNull(),
    /** The duration of earlier attempts of this compile. TIMEOUT covers all of them. */
    spentMs: int('spent_ms').notNull().default(0),
    nonce: text('nonce'),
    cancelRequested: bool('cancel_requested').notNull(),
    createdAt: createdAt(),
    enqueuedAt: instant('enqueued_at'),
    startedAt: instant('started_at'),
    finishedAt: instant('finished_at'),
    /** The name of the node that the current or last compile runs on. Null with a single host. */
    node: text('node'),
  },
  table => [
    uniqueIndex('dependencies_name').on(table.ownerId, table.nameKey),
    index('dependencies_owner').on(table.ownerId, table.id),
    index('dependencies_shared').on(table.id).where(sql`shared = 1`),
    index('dependencies_unfinished').on(table.id).where(sql.raw(unfinished.compile)),
    index('dependencies_artifact').on(table.artifactHash),
    index('dependencies_recipe').on(table.recipeHash),
    index('dependencies_archive').on(table.archiveHash),
  ],
);

/** What a dependency was when it was last shared, for the accounts that still use it. */
export const keptVersions = sqliteTable(
  'kept_versions',
  {
    id: id(),
    dependencyId: int64('dependency_id')
      .notNull()
      .references(() => dependencies.id, { onDelete: 'cascade' }),
    name: text('name').notNull(),
    prefix: text('prefix').notNull(),
    artifactHash: text('artifact_hash')
      .notNull()
      .references(() => artifacts.hash),
    launchCommand: text('launch_command').notNull(),
    launchSeconds: int('launch_seconds').notNull(),
    environment: text('environment').notNull(),
    libraryPath: bool('library_path').notNull(),
    createdAt: createdAt(),
  },
  table => [
    index('kept_versions_dependency').on(table.dependencyId),
    index('kept_versions_artifact').on(table.artifactHash),
  ],
);

/** The versions of related dependencies that belong to a kept version. */
export const keptRelations = sqliteTable(
  'kept_relations',
  {
    versionId: int64('version_id')
      .notNull()
      .references(() => keptVersions.id, { onDelete: 'cascade' }),
    relatedId: int64('related_id')
      .notNull()
      .references(() => keptVersions.id, { onDelete: 'cascade' }),
    position: int('position').notNull(),
  },
  table => [
    primaryKey({ columns: [table.versionId, table.relatedId] }),
    index('kept_relations_related').on(table.relatedId),
  ],
);

export const relatedDependencies = sqliteTable(
  'related_dependencies',
  {
    dependencyId: int64('dependency_id')
      .notNull()
      .references(() => dependencies.id, { onDelete: 'cascade' }),
    relatedId: int64('related_id')
      .notNull()
      .references(() => dependencies.id),
    position: int('position').notNull(),
    /** Set if the related dependency is no longer shared with the owner of this one, who keeps this version. */
    keptVersionId: int64('kept_version_id').references(() => keptVersions.id),
    /** Its position in the last successful compile; null if that compile did not use it. */
    compiledPosition: int('compiled_position'),
    /** No longer asked for. The row stays until the next successful compile, because builds use what was compiled. */
    removed: bool('removed').notNull().default(false),
  },
  table => [
    primaryKey({ columns: [table.dependencyId, table.relatedId] }),
    index('related_dependencies_related').on(table.relatedId),
    index('related_dependencies_kept').on(table.keptVersionId).where(sql`kept_version_id IS NOT NULL`),
  ],
);

/** The id gives the order in which dependencies were attached. */
export const suiteDependencies = sqliteTable(
  'suite_dependencies',
  {
    id: id(),
    suiteId: int64('suite_id')
      .notNull()
      .references(() => suites.id, { onDelete: 'cascade' }),
    dependencyId: int64('dependency_id')
      .notNull()
      .references(() => dependencies.id),
    /** Set if the dependency is no longer shared with the owner of the suite, who keeps this version. */
    keptVersionId: int64('kept_version_id').references(() => keptVersions.id),
  },
  table => [
    uniqueIndex('suite_dependencies_pair').on(table.suiteId, table.dependencyId),
    index('suite_dependencies_kept').on(table.keptVersionId).where(sql`kept_version_id IS NOT NULL`),
    index('suite_dependencies_dependency').on(table.dependencyId),
  ],
);

/** Appliances whose exported dependencies an administrator has agreed to import. */
export const trustedAppliances = sqliteTable('trusted_appliances', {
  /** SHA-256 of its public key in hex. */
  fingerprint: text('fingerprint').primaryKey(),
  name: text('name').notNull(),
  createdAt: createdAt(),
});
