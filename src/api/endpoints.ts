// The table of all API endpoints.

import { builds } from './builds.ts';
import { commandLine } from './command-line.ts';
import { dependencies } from './dependencies.ts';
import { dependencyFiles } from './dependency-files.ts';
import { deploys } from './deploys.ts';
import { type Endpoint, endpoint } from './endpoint.ts';
import { firehoses } from './firehose.ts';
import { hooks } from './hooks.ts';
import { readCallback, respondLongText } from './http/respond.ts';
import { identity, operations } from './identity.ts';
import { notifications } from './notifications.ts';
import { describe } from './openapi.ts';
import { projects } from './projects.ts';
import { artifacts } from './result/artifacts.ts';
import { diff } from './result/diff.ts';
import { searches } from './result/search.ts';
import { tests } from './result/tests.ts';
import { snapshots } from './snapshots.ts';
import { suites } from './suites.ts';
import { triggers } from './triggers.ts';

let cached = { baseUrl: '', json: '' };

const openapi = endpoint({
  method: 'GET',
  path: '/openapi.json',
  summary: 'Returns this document',
  access: 'anyone',
  scope: undefined,
  response: { media: 'application/json', description: 'An OpenAPI 3.1 document.' },
  // Cached, because anyone may request it and it does not change while the server runs.
  handle: ({ baseUrl, version, request, url }) => {
    if (cached.baseUrl !== baseUrl)
      cached = { baseUrl, json: JSON.stringify(describe(endpoints, { baseUrl, version })) };
    return respondLongText(request, cached.json, 200, readCallback(request.method, url));
  },
});

export const endpoints: readonly Endpoint[] = [
  identity,
  projects,
  builds,
  snapshots,
  searches,
  artifacts,
  diff,
  suites,
  tests,
  deploys,
  notifications,
  triggers,
  hooks,
  dependencies,
  dependencyFiles,
  firehoses,
  { openapi },
  commandLine,
  operations,
].flatMap(group => Object.values<Endpoint>(group));
