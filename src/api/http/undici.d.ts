// The files of undici that are imported by their path, which it declares no types for.

declare module 'undici/lib/web/fetch/headers.js' {
  export const Headers: typeof globalThis.Headers;
}
declare module 'undici/lib/web/fetch/request.js' {
  export const Request: typeof globalThis.Request;
}
declare module 'undici/lib/web/fetch/response.js' {
  export const Response: typeof globalThis.Response;
}
