// Decides which authority the client trusts for a server: those of the system, or one that the user accepts by its
// fingerprint, as with ssh. Nothing is sent to a server before that.

import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { connect, type TLSSocket } from 'node:tls';
import { askYesNo, UsageError } from '../command/command.ts';
import { CertificateError, explainFailure, trustOnly, UNTRUSTED } from './connection.ts';
import { plain } from './output.ts';

const HANDSHAKE_MS = 20_000;

export type TrustOptions = {
  url: string;
  /** PEM: the authority that was accepted before. */
  accepted: string | undefined;
  /** The fingerprint that the user expects. Then nothing is asked. */
  fingerprint: string | undefined;
};

/** PEM of the only authority to trust; undefined for those of the system. Throws if the user does not accept it. */
export async function chooseAuthority({
  url,
  accepted,
  fingerprint,
}: TrustOptions): Promise<string | undefined> {
  const expected = fingerprint === undefined ? undefined : parseFingerprint(fingerprint);
  const shown = await inspect(url, accepted);
  if (expected === undefined) {
    if (shown.isTrusted) return accepted;
    if (accepted !== undefined && (await inspect(url, undefined)).isTrusted) {
      process.stderr.write(`The certificate of ${url} is now from an authority that this machine trusts.\n`);
      return undefined;
    }
  }
  const ca = shown.authority.toString();
  await verify(url, ca);
  if (expected !== undefined && expected !== shown.authority.fingerprint256)
    throw new CertificateError(
      `the authority of ${url} has another fingerprint, ${shown.authority.fingerprint256}: nothing was sent to the server`,
    );
  if (expected === undefined) await askToTrust(url, shown.authority, accepted);
  return ca;
}

async function askToTrust(
  url: string,
  authority: X509Certificate,
  accepted: string | undefined,
): Promise<void> {
  const lines =
    accepted === undefined
      ? [
          `The certificate of ${url} is from an authority that this machine does not trust:`,
          ...describe(authority),
          'Compare the fingerprint with the one that the administrator gives you: "assay doctor" prints it on the server.',
        ]
      : [
          `WARNING: the certificate of ${url} is not from the authority that you accepted. You accepted:`,
          ...describe(new X509Certificate(accepted)),
          'Now it is:',
          ...describe(authority),
          'Somebody may be intercepting the connection. Trust it only if the administrator replaced the authority.',
        ];
  process.stderr.write(`${lines.join('\n')}\n`);
  const isAccepted = await askYesNo(
    'Trust it? [y/N] ',
    `there is no terminal to ask on: compare the fingerprint, then pass --fingerprint ${authority.fingerprint256}`,
  );
  if (!isAccepted) throw new CertificateError('the certificate was not accepted: nothing was sent or stored');
}

const describe = ({ subject, fingerprint256 }: X509Certificate) => [
  `  ${subject.split('\n').map(plain).join(', ')}`,
  `  SHA-256 ${fingerprint256}`,
];

/** As X509Certificate writes it. */
function parseFingerprint(text: string): string {
  const digits = text.replace(/^sha-?256(?: fingerprint)?[ :=]/i, '').replaceAll(':', '');
  if (!/^[0-9a-f]{64}$/i.test(digits))
    throw new UsageError('--fingerprint must be a SHA-256 fingerprint: 64 hexadecimal digits');
  return (digits.toUpperCase().match(/../g) as string[]).join(':');
}

/** The last certificate that the server sends, and whether its certificate is good for this host. */
async function inspect(url: string, ca: string | undefined) {
  const socket = await handshake(url, ca, false).catch(error => {
    throw explainFailure(error, url, ca !== undefined);
  });
  try {
    let last = socket.getPeerCertificate(true);
    // A self-signed certificate is its own issuer.
    while (last.issuerCertificate && last.issuerCertificate.fingerprint256 !== last.fingerprint256)
      last = last.issuerCertificate;
    if (!last.raw) throw new CertificateError(`the server at ${url} has no certificate`);
    return { isTrusted: socket.authorized, authority: new X509Certificate(last.raw) };
  } finally {
    socket.destroy();
  }
}

/** Throws if the certificate would be refused with this authority too: another name, expired, an incomplete chain. */
async function verify(url: string, ca: string): Promise<void> {
  try {
    (await handshake(url, ca, true)).destroy();
  } catch (error) {
    throw UNTRUSTED.includes((error as NodeJS.ErrnoException).code ?? '')
      ? new CertificateError(
          `the certificate of ${url} cannot be verified with the authority that the server sends: ask its administrator for the complete chain`,
        )
      : explainFailure(error, url, true);
  }
}

function handshake(url: string, ca: string | undefined, rejectUnauthorized: boolean): Promise<TLSSocket> {
  const { hostname, port } = new URL(url);
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return new Promise((resolve, reject) => {
    const socket = connect({
      host,
      port: Number(port) || 443,
      ...(isIP(host) === 0 && { servername: host }),
      rejectUnauthorized,
      ...trustOnly(ca),
    });
    socket.setTimeout(HANDSHAKE_MS, () =>
      socket.destroy(Object.assign(new Error('no response'), { code: 'ETIMEDOUT' })),
    );
    socket.once('secureConnect', () => resolve(socket));
    socket.on('error', reject);
    socket.once('close', () => reject(Object.assign(new Error('closed'), { code: 'ECONNRESET' })));
  });
}
