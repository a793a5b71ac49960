// The page that explains how to install the client: download, lines for each system, what to compare, first commands.

import { html } from 'hono/html';
import { clientFile } from '../asset.ts';
import { formatSize, linkButton, pageHead } from './frame/components.ts';
import { open, type Route } from './frame/route.ts';
import type { Guest, Html, View } from './frame/visit.ts';

export const commandLinePages: Route[] = [open('/ui/client', showInstallation)];

const PATH = '/cli/assay.mjs';

async function showInstallation({ services }: Guest): Promise<View> {
  const { baseUrl, authorityFingerprint } = services;
  const { content, sha256 } = await clientFile();
  const address = `${baseUrl}${PATH}`;
  return {
    title: 'Command line',
    styles: ['manual.css'],
    body: html`${pageHead('Command line', { actions: linkButton(PATH, 'Download assay.mjs', 'primary') })}
<div class="manual-text">
<p>Run, watch and debug builds from your terminal, also of changes that you have not pushed yet. The client is one file for Linux, macOS and Windows. It needs Node.js 20 or newer, and git. The executable of the server contains the same commands.</p>
<h2 id="install">Install</h2>
<p>Use the button above, or these lines. <code>-k</code> is safe here, because the checksum from this page is compared before anything is run.</p>
<h3 id="linux">Linux</h3>
${lines(unixLines(address, `${sha256}  assay.mjs`, 'sha256sum -c'))}
<h3 id="macos">macOS</h3>
${lines(unixLines(address, `${sha256}  assay.mjs`, 'shasum -a 256 -c'))}
<p>If the shell does not find <code>assay</code> afterwards, add <code>~/.local/bin</code> to <code>PATH</code>.</p>
<h3 id="windows">Windows (PowerShell)</h3>
${lines(windowsLines(address, sha256))}
<h3 id="file">Only the file</h3>
<p><a href="${PATH}">assay.mjs</a> (${formatSize(content.length)}) runs as <code>node assay.mjs</code> from any directory. Its SHA-256 checksum:</p>
${lines(sha256)}
<h2 id="start">Start</h2>
${lines(`assay login ${baseUrl}\nassay run --local`)}
<p>The first line signs you in through your browser. The second one, in a checkout of a project, builds your working tree as it is and shows the progress.</p>
<p>If <code>assay login</code> asks whether to trust a certificate authority, compare its SHA-256 fingerprint with this one, and answer yes only if both are the same:</p>
${lines(authorityFingerprint)}
<p><a href="/ui/manual/client">The manual</a> explains all commands.</p>
</div>`,
  };
}

const lines = (text: string): Html =>
  html`<div class="copy"><pre class="copy-text" tabindex="0"><code>${text}</code></pre><button class="button plain" type="button" data-copy hidden>Copy</button></div>`;

/** The name must end in .mjs: Node 20 takes any other file for CommonJS. */
const unixLines = (address: string, sum: string, check: string) =>
  [
    `mkdir -p ~/.local/bin && cd ~/.local/bin && curl -fsSk -o assay.mjs ${address} &&`,
    `  echo '${sum}' | ${check} && chmod +x assay.mjs && ln -sf assay.mjs assay`,
  ].join('\n');

/** The directory WindowsApps is on the path of every user. */
const windowsLines = (address: string, sha256: string) =>
  [
    `curl.exe -fsSk -o "$HOME\\assay.mjs" ${address}`,
    `if ((Get-FileHash "$HOME\\assay.mjs").Hash -eq '${sha256}') { Set-Content "$env:LOCALAPPDATA\\Microsoft\\WindowsApps\\assay.cmd" '@node "%USERPROFILE%\\assay.mjs" %*' } else { 'The checksum is wrong.' }`,
  ].join('\n');
