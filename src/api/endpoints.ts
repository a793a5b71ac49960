// The whole contract, as one table: what is not in it does not exist.

import { builds } from './builds.ts';
import { dependencies } from './dependencies.ts';
import { deploys } from './deploys.ts';
import type { Endpoint } from './endpoint.ts';
import { firehoses } from './firehose.ts';
import { identity, operations } from './identity.ts';
import type { LogFeeds } from './log-feed.ts';
import type { Metrics } from './metrics.ts';
import { notifications } from './notifications.ts';
import { describe } from './openapi.ts';
import { projects } from './projects.ts';
import { suites } from './suites.ts';

export function allEndpoints(parts: {
  feeds: LogFeeds;
  metrics: Metrics;
  version: string;
  baseUrl: string;
}): Endpoint[] {
  const endpoints: Endpoint[] = [
    ...identity,
    ...projects,
    ...builds,
    ...suites,
    ...deploys,
    ...notifications,
    ...dependencies,
    ...firehoses(parts.feeds),
  ];
  endpoints.push(...operations(parts.metrics, () => describe(endpoints, parts)));
  return endpoints;
}
