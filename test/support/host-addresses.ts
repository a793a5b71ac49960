// The host's own IPv4 addresses, for tests that try to reach them from a container.
import { networkInterfaces } from 'node:os';

/** Bridges that other tests make may be gone in the next moment, and their addresses would then lead elsewhere. */
const MADE_BY_TESTS = /^(assay-|drill|br-|veth)/;

export function hostAddresses(): string[] {
  return Object.entries(networkInterfaces())
    .filter(([name]) => !MADE_BY_TESTS.test(name))
    .flatMap(([, addresses]) => addresses ?? [])
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => address);
}
