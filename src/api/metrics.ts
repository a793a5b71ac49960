// Counts requests, builds, deliveries, looks and firings, and renders them for Prometheus. Labels contain no ids, to bound their number.

import type { FiringOutcome } from '../domain/trigger/trigger.ts';

export type Metrics = {
  countRequest(method: string, route: string, status: number): void;
  countBuild(verdict: string, durationMs: number): void;
  countDelivery(outcome: 'delivered' | 'retried' | 'failed'): void;
  countLook(outcome: 'unchanged' | 'changed' | 'failed'): void;
  countFiring(outcome: FiringOutcome): void;
  render(gauges: Record<string, { help: string; values: [labels: string, value: number][] }>): string;
};

/** HTTP/2 accepts any word as a method. Others are counted together, to bound the number of series. */
const METHODS = ['other', 'GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'];
const BUILD_BUCKETS_S = [1, 5, 15, 60, 300, 900, 3600];

export function createMetrics(): Metrics {
  /** By route, then by the index of the method and the status as one number: the labels are written only when rendered. */
  const requests = new Map<string, Map<number, number>>();
  const builds = new Map<string, { count: number; sum: number; buckets: number[] }>();
  const deliveries = new Map<string, number>();
  const looks = new Map<string, number>();
  const firings = new Map<string, number>();
  const bump = <Key>(counts: Map<Key, number>, key: Key) => counts.set(key, (counts.get(key) ?? 0) + 1);

  return {
    countRequest(method, route, status) {
      let counts = requests.get(route);
      if (!counts) {
        counts = new Map();
        requests.set(route, counts);
      }
      bump(counts, Math.max(METHODS.indexOf(method), 0) * 1000 + status);
    },
    countBuild(verdict, durationMs) {
      const seconds = durationMs / 1000;
      const entry = builds.get(verdict) ?? { count: 0, sum: 0, buckets: BUILD_BUCKETS_S.map(() => 0) };
      entry.count += 1;
      entry.sum += seconds;
      entry.buckets = entry.buckets.map(
        (count, at) => count + (seconds <= (BUILD_BUCKETS_S[at] as number) ? 1 : 0),
      );
      builds.set(verdict, entry);
    },
    countDelivery(outcome) {
      bump(deliveries, `outcome="${outcome}"`);
    },
    countLook(outcome) {
      bump(looks, `outcome="${outcome}"`);
    },
    countFiring(outcome) {
      bump(firings, `outcome="${outcome}"`);
    },
    render(gauges) {
      const lines: string[] = [];
      const family = (name: string, type: string, help: string) =>
        lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
      family('assay_requests_total', 'counter', 'Handled requests.');
      for (const [route, counts] of requests)
        for (const [key, count] of counts) {
          const method = METHODS[Math.floor(key / 1000)];
          lines.push(
            `assay_requests_total{method="${method}",route="${route}",status="${key % 1000}"} ${count}`,
          );
        }
      family(
        'assay_build_seconds',
        'histogram',
        'Duration of builds that finished since the server started, by verdict.',
      );
      for (const [verdict, entry] of builds) {
        BUILD_BUCKETS_S.forEach((bound, at) => {
          lines.push(`assay_build_seconds_bucket{verdict="${verdict}",le="${bound}"} ${entry.buckets[at]}`);
        });
        lines.push(
          `assay_build_seconds_bucket{verdict="${verdict}",le="+Inf"} ${entry.count}`,
          `assay_build_seconds_sum{verdict="${verdict}"} ${entry.sum}`,
          `assay_build_seconds_count{verdict="${verdict}"} ${entry.count}`,
        );
      }
      family('assay_deliveries_total', 'counter', 'Attempts to deliver webhooks, by outcome.');
      for (const [labels, count] of deliveries) lines.push(`assay_deliveries_total{${labels}} ${count}`);
      family('assay_looks_total', 'counter', 'Checks of repositories for changes, by outcome.');
      for (const [labels, count] of looks) lines.push(`assay_looks_total{${labels}} ${count}`);
      family('assay_firings_total', 'counter', 'Firings of triggers, by outcome.');
      for (const [labels, count] of firings) lines.push(`assay_firings_total{${labels}} ${count}`);
      for (const [name, gauge] of Object.entries(gauges)) {
        family(name, 'gauge', gauge.help);
        for (const [labels, value] of gauge.values) lines.push(`${name}${labels && `{${labels}}`} ${value}`);
      }
      return `${lines.join('\n')}\n`;
    },
  };
}
