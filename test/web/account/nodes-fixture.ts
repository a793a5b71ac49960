// Nodes of a swarm as an engine reports them: one that is busy, one that is idle, one that is paused, one that is down and one
// that was not set up.
import type { EngineNode } from '../../../src/domain/node.ts';
import type { Db } from '../../../src/store/database/db.ts';
import { instanceOf } from '../../../src/store/database/stored-values.ts';

const GIB = 1024 ** 3;

const node = (name: string, changes: Partial<EngineNode> = {}): EngineNode => ({
  id: `id-of-${name}`,
  name,
  role: 'worker',
  address: '192.0.2.11',
  state: 'ready',
  availability: 'active',
  engineVersion: '28.2.2',
  cpus: 8,
  memoryBytes: 32 * GIB,
  slots: 4,
  running: [],
  unusable: undefined,
  ...changes,
});

export function exampleNodes(
  db: Db,
  planted: { build_id: bigint; used_dependency_id: bigint },
): EngineNode[] {
  const owner = (kind: string, id: bigint) => ({ instance: instanceOf(db), kind, id: String(id) });
  return [
    node('builder-1', {
      address: '192.0.2.12',
      running: [
        owner('build', planted.build_id),
        owner('dependency', planted.used_dependency_id),
        owner('build', 1n),
      ],
    }),
    node('builder-2', { address: '192.0.2.13', cpus: 64, memoryBytes: 256 * GIB, slots: 40 }),
    node('builder-3', {
      availability: 'pause',
      unusable: 'Its availability is pause.',
      running: [owner('build', planted.build_id)],
    }),
    node('builder-4', {
      state: 'down: heartbeat failure for node in "unknown" state',
      unusable: 'It does not respond (down: heartbeat failure for node in "unknown" state).',
    }),
    node('server', { role: 'manager', slots: 0, unusable: 'It was not set up with the node script.' }),
  ];
}
