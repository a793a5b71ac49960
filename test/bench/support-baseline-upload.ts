// The baseline for uploads: a bare HTTPS server that writes each body to a file and answers when it is on disk.
import { createWriteStream, readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { pipeline } from 'node:stream/promises';

const [file = '', cert = '', key = '', port = ''] = process.argv.slice(2);
createServer({ cert: readFileSync(cert), key: readFileSync(key) }, async (request, response) => {
  await pipeline(request, createWriteStream(file, { flush: true }));
  response.end('{}');
}).listen(Number(port), '127.0.0.1', () => console.log('ready'));
