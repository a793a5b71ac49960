// The host's own IPv4 addresses, for tests that try to reach them from a container.
import { networkInterfaces } from 'node:os';

/** Without bridges that other tests may remove at any moment: their addresses could then lead elsewhere. */
const MADE_BY_TESTS = /^(assay-|drill|br-|veth)/;

export function hostAddresses(): string[] {
  return Object.entries(networkInterfaces())
    .filter(([name]) => !MADE_BY_TESTS.test(name))
    .flatMap(([, addresses]) => addresses ?? [])
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => address);
}
