// The application without workers, with a project that has a push trigger. Prints where its hooks are sent.
import { bootApp, hookSecretOf } from '../support/app.ts';

const app = await bootApp();
const planted = app.plant();
const secret = hookSecretOf(app.db, planted);
const { port } = new URL(app.url);
console.log(
  JSON.stringify({ port: Number(port), ca: app.client.ca, path: `/hooks/${planted.trigger_id}`, secret }),
);
process.once('SIGTERM', () => void app.close());
