// The application without workers, with a project that has a push trigger. Prints where its hooks are sent.
import { newHookSecret } from '../../src/domain/trigger/hook-signature.ts';
import { defaultOptions } from '../../src/domain/trigger/trigger.ts';
import { createTrigger } from '../../src/store/triggers.ts';
import { bootApp } from '../support/app.ts';

const app = await bootApp();
const { project_id: projectId } = app.plant();
const secret = newHookSecret();
const trigger = createTrigger(app.db, {
  projectId,
  name: 'Benchmark',
  triggerType: 'push',
  options: defaultOptions.push,
  nextAt: null,
  secret,
  createdBy: 'owner@example.org',
});
const { port } = new URL(app.url);
console.log(JSON.stringify({ port: Number(port), ca: app.client.ca, path: `/hooks/${trigger.id}`, secret }));
process.once('SIGTERM', () => void app.close());
