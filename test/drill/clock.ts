// Loaded into the program before anything else: a clock that a drill can set. The distance to the real one, in
// milliseconds, is in the file of DRILL_CLOCK, which is read again on SIGUSR2.
import { readFileSync } from 'node:fs';

const RealDate = Date;
const file = process.env.DRILL_CLOCK ?? '';
let aheadMs = Number(readFileSync(file, 'utf8'));
process.on('SIGUSR2', () => {
  aheadMs = Number(readFileSync(file, 'utf8'));
});

globalThis.Date = new Proxy(RealDate, {
  construct: (_, args, target) =>
    Reflect.construct(RealDate, args.length === 0 ? [RealDate.now() + aheadMs] : args, target),
  get: (of, name, receiver) =>
    name === 'now' ? () => RealDate.now() + aheadMs : Reflect.get(of, name, receiver),
});
