// Owns the appliance's own certificate authority and server certificate, and the check of an
// administrator's own PEM files. When to call it again, and what listens with it, is the server's.

import {
  createHash,
  createPrivateKey,
  createPublicKey,
  randomBytes,
  webcrypto,
  X509Certificate,
} from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { isIP } from 'node:net';
import { dirname, join } from 'node:path';
import { domainToASCII } from 'node:url';
import { syncDirectory } from '../fsync.ts';

export type Certificate = {
  /** PEM: the server's certificate, then what leads to its authority. */
  cert: string;
  /** PEM, PKCS#8. */
  key: string;
  endsAt: Date;
};

export type OwnCertificate = Certificate & {
  /** What clients are told to trust. */
  caPath: string;
  /** The moment from which ensureCertificate makes the next one. */
  renewAt: Date;
  /** Whether this call made it. */
  renewed: boolean;
};

type Pair = { certificate: X509Certificate; certPem: string; keyPem: string };
type Issue = {
  subject: string;
  publicKey: webcrypto.CryptoKey;
  issuer: string;
  signingKey: webcrypto.CryptoKey;
  issuerKey: webcrypto.CryptoKey;
  lifeMs: number;
  hosts?: string[];
};

const dayMs = 86_400_000;
const authorityLifeMs = 3650 * dayMs;
// Browsers and Apple's platforms refuse server certificates that live longer than 398 days.
const serverLifeMs = 397 * dayMs;
const renewBeforeMs = 30 * dayMs;
// A client whose clock is a little behind still takes a certificate that was made just now.
const clockSkewMs = 3_600_000;
const curve = { name: 'ECDSA', namedCurve: 'P-256' };
const alwaysCovered = ['localhost', '127.0.0.1', '::1'];

type Wanted = { directory: string; hosts: string[]; now?: Date };

const lastTurns = new Map<string, Promise<unknown>>();

/** One at a time for each directory: a reload may fall together with the daily look, and both would write. */
export function ensureCertificate(wanted: Wanted): Promise<OwnCertificate> {
  const before = lastTurns.get(wanted.directory) ?? Promise.resolve();
  const mine = before.catch(() => {}).then(() => ensure(wanted));
  lastTurns.set(wanted.directory, mine);
  return mine;
}

async function ensure(wanted: Wanted): Promise<OwnCertificate> {
  const { directory } = wanted;
  const now = wanted.now ?? new Date();
  const hosts = [...new Set([...wanted.hosts.map(plainHost), ...alwaysCovered])];
  const caPath = join(directory, 'ca.pem');
  await mkdir(directory, { recursive: true, mode: 0o700 });

  const authority = await readPair(directory, 'ca');
  const server = await readPair(directory, 'server');
  const usable =
    authority !== undefined &&
    server !== undefined &&
    isCurrent(authority.certificate, now, 0) &&
    isCurrent(server.certificate, now, renewBeforeMs) &&
    server.certificate.verify(authority.certificate.publicKey) &&
    hosts.every(host => covers(server.certificate, host));
  if (usable) return present(server, authority, caPath, false);

  const signer =
    authority !== undefined && isCurrent(authority.certificate, now, serverLifeMs)
      ? authority
      : await issueAuthority(
          directory,
          authority?.keyPem ?? (await readIfThere(join(directory, 'ca.key'))),
          now,
        );
  return present(await issueServer(directory, signer, hosts, now), signer, caPath, true);
}

/** The administrator's own files (TLS_CERT, TLS_KEY); refuses what a client would refuse later. */
export async function loadCertificate(
  certPath: string,
  keyPath: string,
  now = new Date(),
): Promise<Certificate> {
  const cert = await readGiven('TLS_CERT', certPath);
  const key = await readGiven('TLS_KEY', keyPath);
  const certificate = parse(
    'TLS_CERT',
    certPath,
    'a certificate in PEM form',
    () => new X509Certificate(cert),
  );
  const privateKey = parse('TLS_KEY', keyPath, 'a private key in PEM form without a passphrase', () =>
    createPrivateKey(key),
  );
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new Error(
      `TLS_KEY: ${keyPath} does not belong to the first certificate in ${certPath} (the server's own comes first, then its chain)`,
    );
  }
  if (certificate.validFromDate > now) {
    throw new Error(`TLS_CERT: ${certPath} is not valid before ${certificate.validFromDate.toISOString()}`);
  }
  if (certificate.validToDate <= now) {
    throw new Error(
      `TLS_CERT: ${certPath} ended on ${certificate.validToDate.toISOString()}: put a renewed one there`,
    );
  }
  return { cert, key, endsAt: certificate.validToDate };
}

function present(server: Pair, authority: Pair, caPath: string, renewed: boolean): OwnCertificate {
  const endsAt = server.certificate.validToDate;
  return {
    cert: server.certPem + authority.certPem,
    key: server.keyPem,
    caPath,
    endsAt,
    renewAt: new Date(endsAt.getTime() - renewBeforeMs),
    renewed,
  };
}

// A new authority on the old key has the old name too: whoever trusts its predecessor is not cut off.
async function issueAuthority(directory: string, oldKeyPem: string | undefined, now: Date): Promise<Pair> {
  const keys = await keysFrom(oldKeyPem);
  const keyPem = await exportKey(keys.privateKey);
  const fingerprint = createHash('sha256').update(
    createPublicKey(keyPem).export({ type: 'spki', format: 'der' }),
  );
  const name = `O=Assay, CN=Assay CA ${fingerprint.digest('hex').slice(0, 8)}`;
  const certPem = await issue(
    {
      subject: name,
      publicKey: keys.publicKey,
      issuer: name,
      signingKey: keys.privateKey,
      issuerKey: keys.publicKey,
      lifeMs: authorityLifeMs,
    },
    now,
  );
  return writePair(directory, 'ca', certPem, keyPem);
}

async function issueServer(directory: string, authority: Pair, hosts: string[], now: Date): Promise<Pair> {
  const keys = await keysFrom(undefined);
  const authorityKeys = await keysFrom(authority.keyPem);
  const certPem = await issue(
    {
      subject: 'O=Assay, CN=Assay server',
      publicKey: keys.publicKey,
      issuer: authority.certificate.subject.split('\n').join(', '),
      signingKey: authorityKeys.privateKey,
      issuerKey: authorityKeys.publicKey,
      lifeMs: serverLifeMs,
      hosts,
    },
    now,
  );
  return writePair(directory, 'server', certPem, await exportKey(keys.privateKey));
}

async function issue(wanted: Issue, now: Date): Promise<string> {
  const x509 = await loadX509();
  const extensions =
    wanted.hosts === undefined
      ? [
          new x509.BasicConstraintsExtension(true, 0, true),
          new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        ]
      : [
          new x509.BasicConstraintsExtension(false, undefined, true),
          new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
          new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
          new x509.SubjectAlternativeNameExtension(
            wanted.hosts.map(value => ({ type: isIP(value) ? ('ip' as const) : ('dns' as const), value })),
          ),
        ];
  const certificate = await x509.X509CertificateGenerator.create({
    // A leading 01 keeps the number positive and free of leading zeros, as strict readers want it.
    serialNumber: `01${randomBytes(15).toString('hex')}`,
    subject: wanted.subject,
    issuer: wanted.issuer,
    notBefore: new Date(now.getTime() - clockSkewMs),
    notAfter: new Date(now.getTime() - clockSkewMs + wanted.lifeMs),
    publicKey: wanted.publicKey,
    signingKey: wanted.signingKey,
    signingAlgorithm: { ...curve, hash: 'SHA-256' },
    extensions: [
      ...extensions,
      await x509.SubjectKeyIdentifierExtension.create(wanted.publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(wanted.issuerKey),
    ],
  });
  return `${certificate.toString('pem')}\n`;
}

// Loaded only when something is to be issued: most starts find a valid certificate, and the package
// takes longer to load than all the rest of them. Its injection library insists on a metadata store,
// which nothing that is used here ever writes to.
async function loadX509(): Promise<typeof import('@peculiar/x509')> {
  if (!('getMetadata' in Reflect)) {
    Object.assign(Reflect, { getMetadata() {}, getOwnMetadata() {}, defineMetadata() {} });
  }
  return import('@peculiar/x509');
}

async function keysFrom(keyPem: string | undefined): Promise<webcrypto.CryptoKeyPair> {
  const readable = keyPem === undefined ? undefined : readKey(keyPem);
  if (readable === undefined) return webcrypto.subtle.generateKey(curve, true, ['sign', 'verify']);
  const spki = createPublicKey(readable).export({ type: 'spki', format: 'der' });
  const pkcs8 = readable.export({ type: 'pkcs8', format: 'der' });
  return {
    privateKey: await webcrypto.subtle.importKey('pkcs8', pkcs8, curve, true, ['sign']),
    publicKey: await webcrypto.subtle.importKey('spki', spki, curve, true, ['verify']),
  };
}

function readKey(keyPem: string) {
  try {
    const key = createPrivateKey(keyPem);
    return key.asymmetricKeyDetails?.namedCurve === 'prime256v1' ? key : undefined;
  } catch {
    return undefined;
  }
}

async function exportKey(key: webcrypto.CryptoKey): Promise<string> {
  const der = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', key));
  return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
    .export({ type: 'pkcs8', format: 'pem' })
    .toString();
}

/** Undefined when a file is missing, unreadable as PEM, or the two do not belong together. */
async function readPair(directory: string, name: string): Promise<Pair | undefined> {
  const certPem = await readIfThere(join(directory, `${name}.pem`));
  const keyPem = await readIfThere(join(directory, `${name}.key`));
  if (certPem === undefined || keyPem === undefined) return undefined;
  const key = readKey(keyPem);
  if (key === undefined) return undefined;
  try {
    const certificate = new X509Certificate(certPem);
    return certificate.checkPrivateKey(key) ? { certificate, certPem, keyPem } : undefined;
  } catch {
    return undefined;
  }
}

// The key goes first: a crash between the two leaves a pair that does not match, and it is made again.
async function writePair(directory: string, name: string, certPem: string, keyPem: string): Promise<Pair> {
  await writeWhole(join(directory, `${name}.key`), keyPem, 0o600);
  await writeWhole(join(directory, `${name}.pem`), certPem, 0o644);
  return { certificate: new X509Certificate(certPem), certPem, keyPem };
}

async function writeWhole(path: string, text: string, mode: number): Promise<void> {
  const temporary = `${path}.new`;
  await rm(temporary, { force: true });
  const file = await open(temporary, 'wx', mode);
  try {
    // The process's umask may have taken bits away that other readers of a certificate need.
    await file.chmod(mode);
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  await syncDirectory(dirname(path));
}

function isCurrent(certificate: X509Certificate, now: Date, marginMs: number): boolean {
  return certificate.validFromDate <= now && certificate.validToDate.getTime() > now.getTime() + marginMs;
}

function covers(certificate: X509Certificate, host: string): boolean {
  const name = isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host, { subject: 'never' });
  return name !== undefined;
}

function plainHost(host: string): string {
  const bare = host.replace(/^\[(.*)\]$/, '$1').replace(/%.*$/, '');
  const name = isIP(bare) ? bare : domainToASCII(bare);
  if (name === '')
    throw new Error(`"${host}" is not a host name or an address that a certificate can be made for`);
  return name;
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function readGiven(setting: string, path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw new Error(`${setting}: ${path} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

function parse<T>(setting: string, path: string, what: string, read: () => T): T {
  try {
    return read();
  } catch {
    throw new Error(`${setting}: ${path} does not hold ${what}`);
  }
}
