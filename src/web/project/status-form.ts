// The form for commit statuses: the forge, its token, and where and what is reported.

import { html } from 'hono/html';
import {
  type ContextChoice,
  defaultForgeOptions,
  type Forge,
  forgeLabel,
  forges,
} from '../../domain/commit-status.ts';
import { type Form, renderForm, selectField, textField } from '../frame/form.ts';
import type { Html } from '../frame/visit.ts';

export const contextLabels: Record<ContextChoice, string> = {
  both: 'the whole request and each suite',
  rollup: 'only the whole request',
  suites: 'only each suite',
};

/** The forge that the host's name suggests. */
export function guessForge(repositoryUrl: string): Forge {
  const host = /@([^:]+):/.exec(repositoryUrl)?.[1] ?? '';
  if (/forgejo|codeberg/i.test(host)) return 'gitea';
  return forges.find(forge => host.toLowerCase().includes(forge)) ?? 'github';
}

const tokenHints: Record<Forge, string> = {
  github: 'a fine-grained token with “Commit statuses: read and write”',
  gitea: 'an access token with “repository: read and write”',
  gitlab: 'a project access token with the role Developer and the scope “api”',
  bitbucket: 'an HTTP access token with the permission “Repository read”',
};

export function renderStatusForm(
  form: Form,
  repositoryUrl: string,
  options: { hasToken: boolean; submit: Html | Html[] },
): Html {
  const { repository } = defaultForgeOptions('gitlab', repositoryUrl);
  return renderForm(form, {
    fields: html`${selectField(form, {
      name: 'options[forge]',
      label: 'Forge',
      required: true,
      autofocus: true,
      choices: forges.map(value => ({ value, label: forgeLabel(value) })),
    })}
${textField(form, {
  name: 'options[token]',
  label: 'Token',
  required: !options.hasToken,
  type: 'password',
  autocomplete: 'new-password',
  code: true,
  hint: options.hasToken
    ? 'Leave it empty to keep the token. Another forge or another host needs a new one.'
    : html`Stored encrypted and never shown again. It must be allowed to set commit statuses:<br>${forges.map(
        forge => html`${forgeLabel(forge)}: ${tokenHints[forge]}<br>`,
      )}`,
})}
${textField(form, {
  name: 'options[repository]',
  label: 'Repository',
  code: true,
  placeholder: repository,
  hint: html`As the forge names it. Default: <code>${repository}</code>`,
})}
${textField(form, {
  name: 'options[url]',
  label: 'Address of the API',
  code: true,
  hint: html`Default:<br>${forges.map(
    forge => html`${forgeLabel(forge)}: <code>${defaultForgeOptions(forge, repositoryUrl).url}</code><br>`,
  )}`,
})}
${selectField(form, {
  name: 'options[contexts]',
  label: 'Report',
  required: true,
  hint: html`The status <code>assay</code> covers the whole request and always finishes, so require this one before a merge. Each suite has its own, such as <code>assay/Unit tests</code>.`,
  choices: Object.entries(contextLabels).map(([value, label]) => ({ value, label })),
})}`,
    submit: options.submit,
  });
}
