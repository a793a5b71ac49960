// The routes of the manual and the API reference. They need no sign-in. Their code is loaded when it is first needed, so
// that the parser of Markdown does not delay the start of the server.

import { open, type Route } from '../frame/route.ts';

export const manualPages: Route[] = [
  open('/ui/manual', async guest => (await import('./views.ts')).showManual(guest)),
  open('/ui/manual/:topic', async guest => (await import('./views.ts')).showManualTopic(guest)),
  open('/ui/api', async guest => (await import('./api-reference.ts')).showReference(guest)),
];
