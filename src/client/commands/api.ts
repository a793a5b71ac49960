// `assay api`: any call of the API, with the sign-in and the certificate of the client.

import { type Command, UsageError } from '../../command/command.ts';
import { readText } from '../connection.ts';
import { EXIT } from '../exit-status.ts';
import { write } from '../output.ts';
import { HOST_LINES, hostFlags, withConnection } from '../session.ts';

export const api: Command = {
  name: 'api',
  summary: 'Calls the API and prints the response as it is.',
  positionals: ['METHOD', 'PATH', '[FIELD=VALUE...]'],
  flags: hostFlags,
  help: [
    '  assay api GET /projects',
    '  assay api POST /projects/ID/build_requests commit_ref=main',
    '',
    'Fields of a GET are its query. All calls are at /ui/api of the server.',
    '',
    ...HOST_LINES,
  ],
  run: invocation =>
    withConnection(invocation, async connection => {
      const [given = '', path = '', ...pairs] = invocation.positionals;
      const method = given.toUpperCase();
      if (!['GET', 'HEAD', 'POST', 'PUT', 'DELETE'].includes(method))
        throw new UsageError(`${JSON.stringify(given)} is not a method: GET, POST, PUT or DELETE`);
      if (!path.startsWith('/')) throw new UsageError('the path begins with a slash, as in /projects');
      const fields = readFields(pairs);
      const isQuery = method === 'GET' || method === 'HEAD';
      const response = await connection.send(method, path, {
        ...(pairs.length > 0 && (isQuery ? { query: fields } : { fields })),
      });
      const status = response.statusCode ?? 0;
      if (response.headers['content-type']?.startsWith('application/json')) {
        const text = await readText(response);
        await write(text.endsWith('\n') ? text : `${text}\n`);
      } else for await (const chunk of response as AsyncIterable<Buffer>) await write(chunk);
      if (status < 300) return EXIT.passed;
      if (status >= 500) return EXIT.unreachable;
      return status === 403 ? EXIT.usage : EXIT.refused;
    }),
};

function readFields(pairs: readonly string[]): Record<string, string[]> {
  const fields: Record<string, string[]> = {};
  for (const pair of pairs) {
    const equals = pair.indexOf('=');
    if (equals < 1) throw new UsageError(`${JSON.stringify(pair)} must have the form FIELD=VALUE`);
    const name = pair.slice(0, equals);
    fields[name] = [...(fields[name] ?? []), pair.slice(equals + 1)];
  }
  return fields;
}
