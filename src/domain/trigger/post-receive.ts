// The post-receive hook of a plain git repository that calls a push trigger, as the pages and the manual show it.

import { shellQuote } from '../text/shell.ts';

/** Where the hook finds the certificate authority of the server and the secret, unless it is written for other files. */
export const HOOK_CA_PATH = '/etc/assay-ca.pem';
export const HOOK_TOKEN_PATH = '/etc/assay-hook-token';

/**
 * Sends the lines that git passes to it. The secret is in a file, so no list of processes shows it. A call that fails
 * prints why, but does not make the push fail.
 */
export function postReceiveScript(url: string, caPath = HOOK_CA_PATH, tokenPath = HOOK_TOKEN_PATH): string {
  const quote = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : shellQuote(text));
  return `#!/bin/sh
curl -fsS --max-time 5 \\
  --cacert ${quote(caPath)} \\
  -H ${quote(`@${tokenPath}`)} \\
  --data-binary @- \\
  ${quote(url)} >/dev/null || true
`;
}

/** The content of the file with the secret. */
export const hookTokenFile = (secret: string): string => `X-Assay-Token: ${secret}\n`;
