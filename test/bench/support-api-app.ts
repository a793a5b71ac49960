// The application without workers on an existing data directory, so that requests for builds are stored and not run.
import { bootApp } from '../support/app.ts';

const [data = '', port = ''] = process.argv.slice(2);
const app = await bootApp({ data, listen: { host: '127.0.0.1', port: Number(port) } });
console.log('ready');
process.once('SIGTERM', () => void app.close());
