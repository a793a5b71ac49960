// Images as `docker save` writes them, from entries that a test chooses.
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { type Header, pack } from 'tar-stream';

export type TarEntry = Partial<Header> & { name: string; content?: string | Buffer };

export async function tarOf(entries: readonly TarEntry[]): Promise<Buffer> {
  const tar = pack();
  for (const { content, ...header } of entries)
    if (content === undefined) tar.entry({ mtime: new Date(0), ...header });
    else tar.entry({ mtime: new Date(0), ...header }, content as string);
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

export const sha256Of = (content: Buffer) => createHash('sha256').update(content).digest('hex');

export type Saved = { id: string; tar: Buffer; diffIds: string[] };

const configOf = (layers: readonly Buffer[]) => ({
  architecture: 'arm64',
  os: 'linux',
  created: '2026-01-02T03:04:05Z',
  config: { Env: ['PATH=/bin'], Labels: { kept: 'yes' } },
  rootfs: { type: 'layers', diff_ids: layers.map(layer => `sha256:${sha256Of(layer)}`) },
  history: layers.map(() => ({ created: '2026-01-02T03:04:05Z', created_by: 'base' })),
});

/** As Docker 20.10 writes it: the second of two layers with the same content is a link to the first. */
export async function savedByOldDocker(layers: readonly Buffer[]): Promise<Saved> {
  const config = Buffer.from(JSON.stringify(configOf(layers)));
  const id = sha256Of(config);
  const names = layers.map((_, at) => `${String(at).padStart(64, '0')}`);
  const entries = layers.flatMap((layer, at): TarEntry[] => {
    const first = layers.findIndex(other => other.equals(layer));
    return [
      { name: `${names[at]}/`, type: 'directory' },
      { name: `${names[at]}/VERSION`, content: '1.0' },
      { name: `${names[at]}/json`, content: '{}' },
      first === at
        ? { name: `${names[at]}/layer.tar`, content: layer }
        : { name: `${names[at]}/layer.tar`, type: 'symlink', linkname: `../${names[first]}/layer.tar` },
    ];
  });
  const manifest = [{ Config: `${id}.json`, RepoTags: null, Layers: names.map(name => `${name}/layer.tar`) }];
  return {
    id: `sha256:${id}`,
    diffIds: configOf(layers).rootfs.diff_ids,
    tar: await tarOf([
      ...entries,
      { name: `${id}.json`, content: config },
      { name: 'manifest.json', content: JSON.stringify(manifest) },
    ]),
  };
}

/** As newer versions write it. Layers may be compressed. */
export async function savedByNewDocker(
  layers: readonly Buffer[],
  { isCompressed }: { isCompressed: boolean },
): Promise<Saved> {
  const config = Buffer.from(JSON.stringify(configOf(layers)));
  const stored = layers.map(layer => (isCompressed ? gzipSync(layer) : layer));
  const blob = (content: Buffer): TarEntry => ({ name: `blobs/sha256/${sha256Of(content)}`, content });
  const manifest = [
    {
      Config: blob(config).name,
      RepoTags: ['base:latest'],
      Layers: stored.map(layer => blob(layer).name),
    },
  ];
  return {
    id: `sha256:${sha256Of(config)}`,
    diffIds: configOf(layers).rootfs.diff_ids,
    tar: await tarOf([
      { name: 'blobs/', type: 'directory' },
      { name: 'blobs/sha256/', type: 'directory' },
      ...[config, ...stored].map(blob),
      { name: 'index.json', content: '{"schemaVersion":2,"manifests":[]}' },
      { name: 'manifest.json', content: JSON.stringify(manifest) },
      { name: 'oci-layout', content: '{"imageLayoutVersion": "1.0.0"}' },
      { name: 'repositories', content: '{}' },
    ]),
  };
}

/** In pieces, as they arrive from a socket. */
export const streamOf = (content: Buffer, pieceBytes = 65_536): Readable =>
  Readable.from(
    (function* () {
      for (let at = 0; at < content.length; at += pieceBytes) yield content.subarray(at, at + pieceBytes);
    })(),
    { objectMode: false },
  );
