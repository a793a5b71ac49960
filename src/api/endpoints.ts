// The whole contract, as one table: what is not in it does not exist.

import { builds } from './builds.ts';
import { dependencies } from './dependencies.ts';
import { deploys } from './deploys.ts';
import { type Endpoint, endpoint } from './endpoint.ts';
import { firehoses } from './firehose.ts';
import { readCallback, respondText } from './http/respond.ts';
import { identity, operations } from './identity.ts';
import { notifications } from './notifications.ts';
import { describe } from './openapi.ts';
import { projects } from './projects.ts';
import { suites } from './suites.ts';

let described = { baseUrl: '', json: '' };

const openapi = endpoint({
  method: 'GET',
  path: '/openapi.json',
  summary: 'This document',
  access: 'anyone',
  scope: undefined,
  response: { media: 'application/json', description: 'An OpenAPI 3.1 document.' },
  // Made once: anyone may ask for it, and it does not change while the program runs.
  handle: ({ baseUrl, version, request, url }) => {
    if (described.baseUrl !== baseUrl)
      described = { baseUrl, json: JSON.stringify(describe(endpoints, { baseUrl, version })) };
    return respondText(described.json, 200, readCallback(request.method, url));
  },
});

export const endpoints: readonly Endpoint[] = [
  identity,
  projects,
  builds,
  suites,
  deploys,
  notifications,
  dependencies,
  firehoses,
  { openapi },
  operations,
].flatMap(group => Object.values<Endpoint>(group));
