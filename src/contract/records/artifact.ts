// The record of an artifact of a build.

import { contentTypeOf } from '../../domain/result/content-type.ts';
import { idPair, ids, record, shape } from '../wire.ts';

export const artifactShape = record('Artifact', {
  ...ids,
  path: shape.string('Path of the file, such as `coverage/index.html`.'),
  size: shape.integer('Size in bytes.'),
  sha256: shape.nullable(
    shape.string(
      'SHA-256 of the content, in hex. Null until it is computed, a moment after the build, if the file is large.',
    ),
  ),
  content_type: shape.string('Media type, by the extension of the name.'),
});

export function presentArtifact(artifact: { id: bigint; path: string; sizeBytes: number; sha256: string }) {
  return {
    ...idPair('id', artifact.id),
    path: artifact.path,
    size: artifact.sizeBytes,
    sha256: artifact.sha256 || null,
    content_type: contentTypeOf(artifact.path),
  };
}
