// Serves the client as one file, for machines that do not have the executable.

import { clientFile } from '../asset.ts';
import { endpoint } from './endpoint.ts';
import { isNotModified } from './http/range.ts';

export const commandLine = {
  client: endpoint({
    method: 'GET',
    path: '/cli/assay.mjs',
    summary: 'Returns the client for the command line, one file for Node.js 20 or newer',
    access: 'anyone',
    scope: undefined,
    response: {
      media: 'text/javascript',
      description: 'The client, with its SHA-256 as ETag.',
      conditional: true,
    },
    handle: async ({ request }) => {
      const { content, sha256 } = await clientFile();
      const headers = {
        'content-type': 'text/javascript; charset=utf-8',
        'content-disposition': 'attachment; filename="assay.mjs"',
        'x-content-type-options': 'nosniff',
        'cross-origin-resource-policy': 'same-origin',
        'cache-control': 'public, no-cache',
        etag: `"${sha256}"`,
      };
      if (isNotModified(request, headers.etag)) return new Response(null, { status: 304, headers });
      return new Response(content, { headers: { ...headers, 'content-length': String(content.length) } });
    },
  }),
};
