// The tables of what builds were made of and produced: inputs, artifacts, test results and error lines.

import { sql } from 'drizzle-orm';
import { index, primaryKey, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core';
import type { BuildInputs } from '../../domain/result/build-inputs.ts';
import type { TestChange, TestResult } from '../../domain/result/test-result.ts';
import { bool, digest, instant, int, int64, packed } from './columns.ts';
import { builds, projects } from './schema.ts';

/** What a build was made of, for comparisons with other builds. Values of variables are not in it, only fingerprints. */
export const buildInputs = sqliteTable('build_inputs', {
  buildId: int64('build_id')
    .primaryKey()
    .references(() => builds.id, { onDelete: 'cascade' }),
  /** Equal for two builds with the same inputs. */
  digest: text('digest').notNull(),
  inputs: text('inputs', { mode: 'json' }).$type<BuildInputs>().notNull(),
});

/** The index of a build's ZIP file of artifacts. */
export const buildArtifacts = sqliteTable(
  'build_artifacts',
  {
    id: int64('id').primaryKey(),
    buildId: int64('build_id')
      .notNull()
      .references(() => builds.id, { onDelete: 'cascade' }),
    path: text('path').notNull(),
    sizeBytes: int('size_bytes').notNull(),
    /** The size in the ZIP file. */
    storedBytes: int('stored_bytes').notNull(),
    /** Where its content begins in the ZIP file. */
    offset: int('offset').notNull(),
    /** The compression method of the ZIP format: 0 is stored, 8 is deflate. */
    method: int('method').notNull(),
    crc32: int('crc32').notNull(),
    /** In hex. Empty until it is computed. */
    sha256: text('sha256').notNull(),
    /** Whether it was read as a test report. */
    report: bool('report').notNull(),
  },
  table => [
    uniqueIndex('build_artifacts_path').on(table.buildId, table.path),
    index('build_artifacts_unhashed').on(table.buildId).where(sql`sha256 = ''`),
  ],
);

/** One row: how many builds have artifacts, and their size before compression. Triggers of the database keep it. */
export const artifactSums = sqliteTable('artifact_sums', {
  id: int64('id').primaryKey(),
  builds: int('builds').notNull(),
  sizeBytes: int('size_bytes').notNull(),
});

/** Every test that a report of a suite named. */
export const tests = sqliteTable(
  'tests',
  {
    id: int64('id').primaryKey(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    /** The suite may have been deleted since. */
    suiteId: int64('suite_id').notNull(),
    /** Counts the tests of a suite. Results refer to a test by it. */
    number: int('number').notNull(),
    /** The hash of class name and name, without the parts that change from run to run. */
    key: digest('key').notNull(),
    classname: text('classname').notNull(),
    name: text('name').notNull(),
    file: text('file'),
    firstBuildId: int64('first_build_id').notNull(),
    /** When a report last named it, to the day; 0 if only local runs have. */
    seenAt: instant('seen_at').notNull(),
    /** When it last behaved like a flaky test. */
    flakyAt: instant('flaky_at'),
    /** The build that failed and the one that passed with the same inputs; the same build if it was flaky in one run. */
    flakyFailedBuildId: int64('flaky_failed_build_id'),
    flakyPassedBuildId: int64('flaky_passed_build_id'),
    /** How often it has run since. */
    flakyRuns: int('flaky_runs').notNull(),
  },
  table => [
    uniqueIndex('tests_key').on(table.suiteId, table.key),
    uniqueIndex('tests_number').on(table.suiteId, table.number),
    index('tests_project').on(table.projectId, table.id),
    index('tests_flaky').on(table.suiteId, table.flakyAt).where(sql`flaky_at IS NOT NULL`),
    index('tests_flaky_project').on(table.projectId, table.flakyAt).where(sql`flaky_at IS NOT NULL`),
  ],
);

/** The test results of a build. Results of passed tests are stored only in `results`. */
export const buildReports = sqliteTable(
  'build_reports',
  {
    buildId: int64('build_id')
      .primaryKey()
      .references(() => builds.id, { onDelete: 'cascade' }),
    suiteId: int64('suite_id').notNull(),
    /** The branch of the build's request; empty for a tag, a hash or a local run. */
    branch: text('branch').notNull(),
    /** The build that new and fixed failures were determined against. It may be gone. */
    baseBuildId: int64('base_build_id'),
    durationMs: int('duration_ms').notNull(),
    /** Why a report could not be read to its end; null if all could. */
    malformed: text('malformed'),
    /** The number, result, change and duration of each test. */
    results: packed('results').notNull(),
    local: bool('local').notNull().default(false),
  },
  table => [
    index('build_reports_suite').on(table.suiteId, table.local, table.buildId),
    index('build_reports_branch').on(table.suiteId, table.branch, table.buildId),
  ],
);

/** The messages of failed, errored and flaky tests. A build with many has rows for the first of them only. */
export const testFailures = sqliteTable(
  'test_failures',
  {
    buildId: int64('build_id')
      .notNull()
      .references(() => builds.id, { onDelete: 'cascade' }),
    testId: int64('test_id')
      .notNull()
      .references(() => tests.id, { onDelete: 'cascade' }),
    result: text('result').$type<TestResult>().notNull(),
    change: text('change').$type<TestChange>().notNull(),
    durationMs: int('duration_ms'),
    /** How often it was repeated in this build. */
    retries: int('retries').notNull(),
    message: text('message').notNull(),
    details: text('details').notNull(),
  },
  table => [
    primaryKey({ columns: [table.buildId, table.testId] }),
    index('test_failures_test').on(table.testId, table.buildId),
  ],
);

/** The error lines of builds that did not pass, so that a similar failure can be found. */
export const failureLines = sqliteTable(
  'failure_lines',
  {
    id: int64('id').primaryKey(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    buildId: int64('build_id')
      .notNull()
      .references(() => builds.id, { onDelete: 'cascade' }),
    /** The hash of the line without times, numbers and other parts that change from run to run. */
    hash: digest('hash').notNull(),
    line: int('line').notNull(),
    text: text('text').notNull(),
  },
  table => [
    index('failure_lines_hash').on(table.projectId, table.hash, table.buildId),
    index('failure_lines_build').on(table.buildId),
  ],
);
