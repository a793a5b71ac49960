// Counts over the whole database, for metrics and the administration page. Each one reads an index, never a whole table.

import { sql } from 'drizzle-orm';
import type { Db } from './database/db.ts';
import { unfinished } from './database/unfinished.ts';
import { countLateLooks } from './trigger/looks.ts';

type Counts = {
  queue: [labels: string, count: number][];
  pendingDeliveries: number;
  triggers: [labels: string, count: number][];
  lateLooks: number;
  databaseBytes: number;
};

export function countByState(db: Db): Counts {
  const rows = db.orm.all<{ kind: string; state: string; count: bigint }>(sql`
    SELECT 'build_request' AS kind, build_state AS state, count(*) AS count FROM build_requests
      WHERE ${sql.raw(unfinished.request)} GROUP BY build_state
    UNION ALL
    SELECT 'build', build_state, count(*) FROM builds
      WHERE ${sql.raw(unfinished.build)} GROUP BY build_state
    UNION ALL
    SELECT 'dependency', compile_state, count(*) FROM dependencies
      WHERE ${sql.raw(unfinished.compile)} GROUP BY compile_state
    UNION ALL
    SELECT 'deploy', state, count(*) FROM deploys
      WHERE ${sql.raw(unfinished.deploy)} GROUP BY state`);
  const pending = db.orm.get<{ count: bigint }>(
    sql`SELECT count(*) AS count FROM deliveries WHERE state = 'pending'`,
  );
  // Triggers are few.
  const triggers = db.orm.all<{ type: string; state: string; count: bigint }>(sql`
    SELECT trigger_type AS type, CASE enabled WHEN 1 THEN state ELSE 'disabled' END AS state, count(*) AS count
      FROM triggers WHERE deleted_at IS NULL GROUP BY 1, 2`);
  const pages = Number(db.sqlite.pragma('page_count', { simple: true }));
  const pageBytes = Number(db.sqlite.pragma('page_size', { simple: true }));
  return {
    queue: rows.map(row => [`kind="${row.kind}",state="${row.state}"`, Number(row.count)]),
    pendingDeliveries: Number(pending?.count ?? 0),
    triggers: triggers.map(row => [`type="${row.type}",state="${row.state}"`, Number(row.count)]),
    lateLooks: countLateLooks(db),
    databaseBytes: pages * pageBytes,
  };
}

/** Builds with artifacts, and the size of their files before compression. Triggers of the database keep the sum. */
export function sumArtifacts(db: Db): { builds: number; sizeBytes: number } {
  const { builds, bytes } = db.orm.get<{ builds: bigint; bytes: bigint }>(
    sql`SELECT builds, size_bytes AS bytes FROM artifact_sums`,
  );
  return { builds: Number(builds), sizeBytes: Number(bytes) };
}
