// What to enter in each forge so that it calls a push trigger, and what often prevents it.

import { html } from 'hono/html';
import {
  HOOK_CA_PATH,
  HOOK_TOKEN_PATH,
  hookTokenFile,
  postReceiveScript,
} from '../../domain/trigger/post-receive.ts';
import { copyText, linkButton, propertyList } from '../frame/components.ts';
import type { Html } from '../frame/visit.ts';
import { type ProjectVisit, projectPath } from './frame.ts';

/** `secret` is absent once it has been shown. `pulls` is whether the trigger builds pull requests from forks. */
export type Hook = { url: string; secret?: string; pulls: boolean };

type Forge = {
  id: string;
  name: string;
  /** Whether a repository is probably hosted there. */
  hosts: RegExp;
  render(hook: Hook): Html;
};

const secretOf = ({ secret }: Hook): Html =>
  secret === undefined
    ? html`the secret that was shown once; if it is lost, create a new one`
    : html`<code>${secret}</code>`;

const ownCertificate = html`If Assay uses a certificate of its own, copy <code>tls/ca.pem</code> from Assay’s data directory (<a href="/ui/manual/install">The certificate</a> in the manual)`;

function renderEntries(
  where: Html,
  entries: readonly (readonly [string, Html | string])[],
  obstacles: readonly Html[],
): Html {
  return html`<p>${where}</p>${propertyList(entries)}<h3>If no call arrives</h3><ul class="obstacles">${obstacles.map(one => html`<li>${one}</li>`)}</ul>`;
}

const hostOf = ({ url }: Hook) => new URL(url).hostname;

const forges: readonly Forge[] = [
  {
    id: 'github',
    name: 'GitHub',
    hosts: /github/,
    render: hook =>
      renderEntries(
        html`In the repository, open <b>Settings › Webhooks › Add webhook</b>.`,
        [
          ['Payload URL', html`<code>${hook.url}</code>`],
          ['Content type', html`<code>application/json</code>`],
          ['Secret', secretOf(hook)],
          ['SSL verification', 'Enable'],
          [
            'Events',
            hook.pulls
              ? 'Let me select individual events: Pushes and Pull requests'
              : 'Just the push event (it includes tags)',
          ],
          ['Active', 'ticked'],
        ],
        [
          html`github.com must reach <code>${hostOf(hook)}</code> from the Internet. Behind a firewall, use a trigger that polls instead.`,
          html`github.com accepts only certificates of a public authority. ${ownCertificate} to GitHub Enterprise Server and add it there with <code>ghe-ssl-ca-certificate-install</code>.`,
          html`<b>Recent Deliveries</b> of the webhook shows each call and Assay’s response. GitHub never resends a failed call automatically: press <b>Redeliver</b>.`,
        ],
      ),
  },
  {
    id: 'gitea',
    name: 'Gitea or Forgejo',
    hosts: /gitea|forgejo|codeberg/,
    render: hook =>
      renderEntries(
        html`In the repository, open <b>Settings › Webhooks › Add webhook</b> and choose <b>Gitea</b> or <b>Forgejo</b>.`,
        [
          ['Target URL', html`<code>${hook.url}</code>`],
          ['HTTP method', html`<code>POST</code>`],
          ['Content type', html`<code>application/json</code>`],
          ['Secret', secretOf(hook)],
          [
            'Trigger on',
            hook.pulls
              ? 'Custom events: Push, Pull request, Pull request synchronized'
              : 'Push events (they include tags)',
          ],
          ['Branch filter', html`<code>*</code>`],
          ['Active', 'ticked'],
        ],
        [
          html`Gitea refuses to call private addresses. An administrator allows it in <code>app.ini</code>: <code>[webhook]</code> <code>ALLOWED_HOST_LIST = external,${hostOf(hook)}</code>`,
          html`${ownCertificate} to the host of Gitea, add it to the system’s trusted certificates and restart Gitea.`,
          html`The webhook’s page lists recent deliveries with Assay’s response, and <b>Test delivery</b> sends one.`,
        ],
      ),
  },
  {
    id: 'gitlab',
    name: 'GitLab',
    hosts: /gitlab/,
    render: hook =>
      renderEntries(
        html`In the project, open <b>Settings › Webhooks › Add new webhook</b>.`,
        [
          ['URL', html`<code>${hook.url}</code>`],
          ['Secret token', secretOf(hook)],
          [
            'Trigger',
            `Push events (all branches)${hook.pulls ? ', Tag push events and Merge request events' : ' and Tag push events'}`,
          ],
          ['SSL verification', 'Enable'],
        ],
        [
          html`GitLab refuses to call the local network. An administrator allows it under <b>Admin › Settings › Network › Outbound requests</b>: add <code>${hostOf(hook)}</code> to the list of allowed hosts.`,
          html`${ownCertificate} to <code>/etc/gitlab/trusted-certs/</code> on the host of GitLab and run <code>gitlab-ctl reconfigure</code>.`,
          html`GitLab sends no call for a push of more than three branches or tags, and pauses a webhook that failed several times. This trigger finds such pushes when it checks the repository at intervals.`,
        ],
      ),
  },
  {
    id: 'bitbucket',
    name: 'Bitbucket Data Center',
    hosts: /bitbucket|stash/,
    render: hook =>
      renderEntries(
        html`In the repository, open <b>Repository settings › Webhooks › Create webhook</b>.`,
        [
          ['Name', 'Assay'],
          ['URL', html`<code>${hook.url}</code>`],
          ['Secret', secretOf(hook)],
          [
            'Events',
            hook.pulls ? 'Repository: Push; Pull request: Opened, Source branch updated' : 'Repository: Push',
          ],
          ['Active', 'ticked'],
        ],
        [
          html`${ownCertificate} to the host of Bitbucket, import it into the Java trust store with <code>keytool -importcert</code> and restart Bitbucket.`,
          html`Push a commit if <b>Test connection</b> fails: only calls for pushes are accepted.`,
        ],
      ),
  },
  {
    id: 'git',
    name: 'Plain git over SSH',
    hosts: /^$/,
    render:
      hook => html`<p>On the host of the repository, do this once. The secret is in a file, so that no list of processes shows it.</p>
<ol class="setup">
<li>${ownCertificate} to <code>${HOOK_CA_PATH}</code>. With a certificate of a public authority, leave out <code>--cacert ${HOOK_CA_PATH}</code> below.</li>
<li>Save this line as <code>${HOOK_TOKEN_PATH}</code>, readable only by the user who receives pushes, often <code>git</code>: <code>chown git</code> and <code>chmod 400</code>.
${copyText(hookTokenFile(hook.secret ?? 'SECRET'), 'Copy line')}${hook.secret === undefined ? html`<p class="hint">Replace SECRET with the secret that was shown once.</p>` : ''}</li>
<li>Save this script as <code>hooks/post-receive</code> in the bare repository, and run <code>chmod +x</code> on it. It needs curl 7.55 or newer. If the call fails, the person who pushes sees why, and the push still succeeds.
${copyText(postReceiveScript(hook.url), 'Copy script')}</li>
</ol>`,
  },
];

/** A choice of forges that works without scripts: opening one closes the others. */
export function renderForgeSetup(visit: ProjectVisit, hook: Hook): Html {
  const { repositoryUrl } = visit.found.project;
  const host = /@([^:/]+)/.exec(repositoryUrl)?.[1] ?? '';
  const likely = forges.find(({ hosts }) => hosts.test(host));
  return html`<p class="lead">Where is <code>${repositoryUrl}</code> hosted?</p>
${forges.map(
  forge =>
    html`<details class="forge" name="forge" id="forge-${forge.id}"${forge === likely ? html` open` : ''}><summary>${forge.name}</summary><div class="forge-body">${forge.render(hook)}</div></details>`,
)}
<p class="hint">Can the forge not reach this server? ${linkButton(projectPath(visit, '/triggers/new/poll'), 'Poll the repository instead')}</p>`;
}
