// The record of a snapshot: a working tree that somebody sent.

import { idPair, ids, record, shape, wireTime } from '../wire.ts';

export const snapshotShape = record('Snapshot', {
  ...ids,
  ref: shape.string('The full hash of its commit.'),
  size_bytes: shape.integer('Size of the bundle.'),
  created_at: shape.time('When it was uploaded. It is deleted seven days later.'),
});

export function presentSnapshot(snapshot: { id: bigint; ref: string; sizeBytes: number; createdAt: number }) {
  return {
    ...idPair('id', snapshot.id),
    ref: snapshot.ref,
    size_bytes: snapshot.sizeBytes,
    created_at: wireTime(snapshot.createdAt),
  };
}
