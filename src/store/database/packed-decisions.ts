// The storage format of a request's decisions: compressed JSON in which rules and values shared by suites appear once.

import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import type { RuleResult } from '../../domain/rules.ts';

export type Decision = { suiteId: bigint; suiteName: string; runs: boolean; rules: readonly RuleResult[] };

/** `saw` is an index into `saws`; the `rules` of a suite are indexes into `rules`. */
type Packed = {
  saws: (string | readonly string[])[];
  rules: [subject: string, operator: string, value: string, holds: boolean, saw: number][];
  suites: [id: string, name: string, runs: boolean, rules: number[]][];
};

export function packDecisions(decisions: readonly Decision[]): Buffer {
  const packed: Packed = { saws: [], rules: [], suites: [] };
  const sawAt = new Map<unknown, number>();
  const ruleAt = new Map<string, number>();
  const pack = ({ subject, operator, value, holds, saw }: RuleResult): number => {
    const seen = sawAt.get(saw) ?? packed.saws.push(saw) - 1;
    sawAt.set(saw, seen);
    const key = `${seen} ${holds} ${subject} ${operator} ${value}`;
    const at = ruleAt.get(key) ?? packed.rules.push([subject, operator, value, holds, seen]) - 1;
    ruleAt.set(key, at);
    return at;
  };
  for (const { suiteId, suiteName, runs, rules } of decisions)
    packed.suites.push([suiteId.toString(), suiteName, runs, rules.map(pack)]);
  return zstdCompressSync(JSON.stringify(packed));
}

export function unpackDecisions(bytes: Buffer): Decision[] {
  const { saws, rules, suites } = JSON.parse(zstdDecompressSync(bytes).toString()) as Packed;
  const unpacked = rules.map(
    ([subject, operator, value, holds, saw]) =>
      ({ subject, operator, value, holds, saw: saws[saw] }) as RuleResult,
  );
  return suites.map(([id, suiteName, runs, of]) => ({
    suiteId: BigInt(id),
    suiteName,
    runs,
    rules: of.map(at => unpacked[at] as RuleResult),
  }));
}
