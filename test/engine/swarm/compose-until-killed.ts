// A process that composes an image in the directory of the first argument, of the saved image in the file of the second. A
// test kills it meanwhile.
import { createReadStream } from 'node:fs';
import { createImageStore } from '../../../src/engine/swarm/image-store.ts';

const [directory = '', file = '', imageId = ''] = process.argv.slice(2);
const store = createImageStore({
  directory,
  registry: 'assay.example.org:443',
  identify: async () => imageId,
  exportImage: async () => createReadStream(file),
});
process.send?.('started');
await store.compose('base', []);
process.send?.('composed');
