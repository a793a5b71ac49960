// Endpoints for the tests that builds report: those of a build, those of a suite, and the history of one.

import {
  buildTestShape,
  presentBuildTest,
  presentTest,
  presentTestRun,
  testRunShape,
  testShape,
} from '../../contract/records/test.ts';
import { testResults } from '../../domain/result/test-result.ts';
import { listBuildTests } from '../../store/result/build-tests.ts';
import { findStatistics, listSuiteTests, testOrders } from '../../store/result/suite-tests.ts';
import { type Found, isFlaky, listTestHistory } from '../../store/result/tests.ts';
import { endpoint, Listing } from '../endpoint.ts';
import { cursor, flag, optional } from '../fields.ts';

const listingOf = <Item, Shown>({ items, next }: Found<Item>, present: (item: Item) => Shown) =>
  new Listing(items.map(present), next);
const afterTest = cursor('Only tests after this one.');

export const tests = {
  listOfBuild: endpoint({
    method: 'GET',
    path: '/projects/:project_id/builds/:build_id/tests',
    summary:
      'Lists the tests of a build: new failures first, then other failures, flaky and fixed tests, passed and skipped ones',
    access: 'sees',
    scope: 'commits',
    query: {
      before: afterTest,
      result: optional({ doc: 'Only tests with this result.', oneOf: testResults }),
      new: flag(
        'Whether to list only tests that fail, and did not in the build that this one is compared with.',
      ),
      q: optional({ doc: 'Only tests whose class name or name contains this text, in upper or lower case.' }),
    },
    response: { list: buildTestShape },
    handle: async ({ db, build, page, query }) => {
      const filter = { result: query.result, isNew: query.new, text: query.q };
      const found = await listBuildTests(db, build, filter, page);
      return listingOf(found, one => presentBuildTest(one, isFlaky(one.test, db.now())));
    },
  }),
  listOfSuite: endpoint({
    method: 'GET',
    path: '/projects/:project_id/suites/:suite_id/tests',
    summary: "Lists the tests of the suite's latest 50 builds with a report, in the order that `sort` names",
    access: 'sees',
    scope: 'commits',
    query: {
      before: afterTest,
      sort: optional({
        doc: '`flaky`: flaky tests first, then by score; `slowest`: by median duration; `failing`: by failures; `newest`: as they appeared first. Default: newest.',
        oneOf: testOrders,
      }),
      branch: optional({ doc: 'Only builds of this branch. Default: all.' }),
    },
    response: { list: testShape },
    handle: async ({ db, suite, page, query }) => {
      const options = { order: query.sort ?? 'newest', branch: query.branch };
      const found = await listSuiteTests(db, suite, options, page);
      return listingOf(found, ({ test, ...statistics }) =>
        presentTest(test, statistics, isFlaky(test, db.now())),
      );
    },
  }),
  get: endpoint({
    method: 'GET',
    path: '/projects/:project_id/tests/:test_id',
    summary: 'Returns a test, and the builds that show that it is flaky',
    access: 'sees',
    scope: 'commits',
    response: { record: testShape },
    handle: async ({ db, test }) =>
      presentTest(test, await findStatistics(db, test), isFlaky(test, db.now())),
  }),
  history: endpoint({
    method: 'GET',
    path: '/projects/:project_id/tests/:test_id/history',
    summary:
      'Lists the builds in which the test ran; a page may have fewer than `limit` although there are more',
    access: 'sees',
    scope: 'commits',
    query: { before: cursor('Only builds older than this one.') },
    response: { list: testRunShape },
    handle: async ({ db, test, page }) => listingOf(await listTestHistory(db, test, page), presentTestRun),
  }),
};
