// Lists the third-party packages in the executable, as a CycloneDX document and as a file of licences.
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { bundle, root } from '../build/bundle.ts';
import type { Machine } from '../build/strip.ts';
import { openSqlite } from '../src/store/database/db.ts';

export type Component = {
  name: string;
  version: string;
  licence: string;
  purl: string;
  /** The value in package-lock.json. */
  integrity?: string;
  licenceText: string;
};

type LockFile = { packages: Record<string, { version: string; license?: string; integrity?: string }> };

/** The packages that the bundle really contains, and what the executable contains besides the bundle. */
export async function listComponents(machine: Machine): Promise<Component[]> {
  const { sources } = await bundle();
  const places = new Set([
    ...sources.filter(path => path.includes('node_modules/')).map(placeOf),
    `node_modules/node-linux-${machine}`,
  ]);
  const lock: LockFile = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  const packages = [...places].sort().map(place => componentAt(place, lock, machine));
  return [...packages, sqlite()];
}

function placeOf(source: string): string {
  const at = source.lastIndexOf('node_modules/') + 'node_modules/'.length;
  const words = source.slice(at).split('/');
  return source.slice(0, at) + words.slice(0, words[0]?.startsWith('@') ? 2 : 1).join('/');
}

function componentAt(place: string, lock: LockFile, machine: Machine): Component {
  const locked = lock.packages[place];
  if (!locked) throw new Error(`package-lock.json does not name ${place}`);
  const name = place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length);
  const { version, license, integrity } = locked;
  return {
    name,
    version,
    licence: license ?? 'NOASSERTION',
    purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
    ...(integrity && { integrity }),
    licenceText: licenceText(place, machine),
  };
}

/** Node for the other processor is not installed, but its licence is the same. */
function licenceText(place: string, machine: Machine): string {
  const other = place.replace(`linux-${machine}`, `linux-${process.arch}`);
  for (const directory of [place, other].map(one => join(root, one))) {
    if (!existsSync(directory)) continue;
    const files = readdirSync(directory).filter(file => /^(licen[cs]e|copying|notice)/i.test(file));
    if (files.length > 0)
      return files.map(file => readFileSync(join(directory, file), 'utf8').trim()).join('\n\n');
  }
  return '(The package contains no licence text.)';
}

function sqlite(): Component {
  const database = openSqlite(':memory:');
  const version = database.prepare('SELECT sqlite_version()').pluck().get() as string;
  database.close();
  return {
    name: 'sqlite',
    version,
    licence: 'blessing',
    purl: `pkg:generic/sqlite@${version}`,
    licenceText: 'SQLite is in the public domain.',
  };
}

/** CycloneDX 1.6, without times and random values: the same components give the same bytes. */
export function billOfMaterials(
  product: { name: string; version: string; licence: string },
  components: readonly Component[],
) {
  const seed = createHash('sha256')
    .update(JSON.stringify([product, components]))
    .digest('hex');
  const uuid = `${seed.slice(0, 8)}-${seed.slice(8, 12)}-4${seed.slice(13, 16)}-8${seed.slice(17, 20)}-${seed.slice(20, 32)}`;
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${uuid}`,
    version: 1,
    metadata: {
      component: {
        type: 'application',
        'bom-ref': 'assay',
        name: product.name,
        version: product.version,
        licenses: licensesOf(product.licence),
      },
    },
    components: components.map(({ name, version, licence, purl, integrity }) => ({
      type: 'library',
      'bom-ref': purl,
      name,
      version,
      licenses: licensesOf(licence),
      purl,
      ...(integrity?.startsWith('sha512-') && {
        hashes: [{ alg: 'SHA-512', content: Buffer.from(integrity.slice(7), 'base64').toString('hex') }],
      }),
    })),
    dependencies: [{ ref: 'assay', dependsOn: components.map(({ purl }) => purl) }],
  };
}

const licensesOf = (licence: string) =>
  /[ ()]/.test(licence)
    ? [{ expression: licence.replace(/^\((.*)\)$/, '$1') }]
    : [{ license: { id: licence } }];

export function licenceFile(components: readonly Component[]): string {
  const intro =
    'Assay contains the following third-party software. Each package is under the licence that follows it.';
  return [
    intro,
    ...components.map(
      ({ name, version, licence, licenceText: text }) =>
        `${'='.repeat(80)}\n${name} ${version} (${licence})\n${'='.repeat(80)}\n\n${text}\n`,
    ),
  ].join('\n\n');
}
