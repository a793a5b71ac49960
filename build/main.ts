// The command line of scripts/build.
import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { root } from './bundle.ts';
import { pack } from './pack.ts';
import type { Machine } from './strip.ts';

const usage = `usage: scripts/build [--arch x64|arm64] [--output FILE] [--force]
  --arch    the processor to build for (default: this machine's)
  --output  the file to write (default: dist/assay)
  --force   build even if nothing has changed`;

function refuse(reason: string): never {
  console.error(`scripts/build: ${reason}\n${usage}`);
  process.exit(2);
}

function readArguments() {
  try {
    return parseArgs({
      options: {
        arch: { type: 'string', default: process.arch },
        output: { type: 'string', default: join(root, 'dist/assay') },
        force: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    }).values;
  } catch (error) {
    return refuse((error as Error).message);
  }
}

function isMachine(value: string): value is Machine {
  return value === 'x64' || value === 'arm64';
}

const { arch: machine, output: outputGiven, force, help } = readArguments();
if (help) {
  console.log(usage);
  process.exit(0);
}
if (!isMachine(machine)) refuse(`--arch ${machine}: x64 or arm64`);
const output = resolve(outputGiven);
const startedAt = performance.now();
const result = await pack({ output, machine, force }).catch(error => {
  console.error(`scripts/build: ${error.message}`);
  process.exit(1);
});
const megabytes = (statSync(output).size / 1e6).toFixed(1);
const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
console.log(`${output}: ${result} (linux-${machine}, ${megabytes} MB, ${seconds} s)`);
