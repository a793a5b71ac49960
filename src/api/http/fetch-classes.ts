// The classes of the Fetch API that the HTTP adapter builds on, for this process. Node has the same ones from the same
// package, but compiles them from source on first use, which takes 30 ms of each start. These are part of the server's code,
// whose compiled form is kept. Must be imported before the adapter, which reads them when it is loaded.

// First, because requests use what it defines for bodies.
import 'undici/lib/web/fetch/response.js';
import { Headers } from 'undici/lib/web/fetch/headers.js';
import { Request } from 'undici/lib/web/fetch/request.js';
import { Response } from 'undici/lib/web/fetch/response.js';

// Assigned, because `Object.defineProperty` would load Node's.
Object.assign(globalThis, { Headers, Request, Response });
// The adapter reads these for WebSockets, which would load Node's too.
Reflect.deleteProperty(globalThis, 'CloseEvent');
Reflect.deleteProperty(globalThis, 'ErrorEvent');
