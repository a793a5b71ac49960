// The applications page: the account's registered applications, and the access it has granted to others.

import { html } from 'hono/html';
import type { SentFields } from '../../api/http/body.ts';
import { parseId } from '../../domain/id.ts';
import { outOfBand } from '../../domain/names.ts';
import { refusal } from '../../domain/refusal.ts';
import { parseNewApplication } from '../../domain/registration.ts';
import {
  type Application,
  createApplication,
  deleteApplication,
  deleteToken,
  findOwnApplication,
  listApplications,
  listTokens,
  replaceClientSecret,
} from '../../store/applications.ts';
import { copyText, linkButton, pageHead, propertyList, relativeTime, table } from '../frame/components.ts';
import { actionButton, checkBox, formTo, renderForm, submitButton, textField } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { form, orShowAgain, page, type Route } from '../frame/route.ts';
import { getByParam, type Html, type Section, type View, type Visit } from '../frame/visit.ts';
import { textOf } from './sign-in.ts';

const PATH = '/ui/applications';

export const applicationPages: Route[] = [
  page(PATH, showApplications),
  page(`${PATH}/new`, showNewApplication),
  form(`${PATH}/new`, addApplication),
  form(`${PATH}/:application/secret`, createSecret),
  form(`${PATH}/:application/delete`, removeApplication),
  form(`${PATH}/tokens/:token/revoke`, revokeToken),
];

function showApplications(visit: Visit): View {
  const { db } = visit.services;
  return {
    title: 'Applications',
    section: 'applications',
    body: html`${pageHead('Applications', { actions: linkButton(`${PATH}/new`, 'New application', 'primary') })}
<p class="lead">Applications act for their users without knowing their passwords or API keys. Your own API key is on the page <a href="/ui/account#api-key">Account</a>.</p>
<section aria-labelledby="registered"><h2 id="registered">Registered applications</h2>${renderApplications(visit, listApplications(db, visit.account.id))}</section>
<section aria-labelledby="granted"><h2 id="granted">Granted access</h2>${renderTokens(visit)}</section>`,
  };
}

function renderApplications(visit: Visit, applications: readonly Application[]): Html {
  return table({
    caption: 'Registered applications',
    columns: ['Name', 'Client ID', 'Redirect URL', 'Actions'],
    rows: applications.map(application => ({
      cells: [
        html`${application.name}${application.clientSecretDigest === null ? html` <span class="tag">public</span>` : ''}`,
        html`<code>${application.clientId}</code>`,
        html`<code>${application.redirectUri}</code>`,
        html`<div class="row">${
          application.clientSecretDigest === null
            ? ''
            : actionButton(formTo(visit, `${PATH}/${application.id}/secret`), 'New secret', {
                confirm: 'Create a new client secret? The old one stops working at once.',
                yes: 'Create new secret',
                no: 'Keep old secret',
              })
        }${actionButton(formTo(visit, `${PATH}/${application.id}/delete`), 'Delete', {
          tone: 'danger',
          confirm: `Delete ${application.name}? All access granted to it is revoked.`,
          yes: 'Delete application',
          no: 'Keep application',
        })}</div>`,
      ],
    })),
    empty: {
      title: 'No applications yet',
      text: 'Register an application to let it act for its users through OAuth 2.0, without knowing their keys.',
    },
  });
}

function renderTokens(visit: Visit): Html {
  const tokens = listTokens(visit.services.db, visit.account.id);
  return table({
    caption: 'Granted access',
    columns: ['Application', 'Scopes', 'Granted', 'Last used', 'Actions'],
    rows: tokens.map(({ token, application }) => ({
      cells: [
        application.name,
        html`<code>${token.scopes}</code>`,
        relativeTime(token.createdAt),
        token.lastUsedAt === null ? 'never' : relativeTime(token.lastUsedAt),
        actionButton(formTo(visit, `${PATH}/tokens/${token.id}/revoke`), 'Revoke', {
          tone: 'danger',
          confirm: `Revoke the access of ${application.name}?`,
          yes: 'Revoke access',
          no: 'Keep access',
        }),
      ],
    })),
    empty: {
      title: 'No access granted',
      text: 'Applications that you approve are listed here. You can revoke their access at any time.',
    },
  });
}

/** Shows a secret; it is shown only once. */
export function secretView(
  title: string,
  properties: readonly (readonly [string, Html])[],
  parent: { href: string; label: string; section: Section } = {
    href: PATH,
    label: 'Applications',
    section: 'applications',
  },
): View {
  return {
    title,
    section: parent.section,
    body: html`${pageHead(title, { parent })}
<div class="panel"><p class="lead">Copy it now. It is not shown again.</p>${propertyList(properties)}</div>
<p>${linkButton(parent.href, 'Done', 'primary')}</p>`,
  };
}

function showNewApplication(visit: Visit): View {
  const create = formTo(visit, `${PATH}/new`);
  return {
    title: 'New application',
    section: 'applications',
    body: html`${pageHead('New application', { parent: { href: PATH, label: 'Applications' } })}
${renderForm(create, {
  fields: html`${textField(create, { name: 'name', label: 'Name', required: true, autofocus: true, hint: 'Shown to the users who approve it.' })}
${textField(create, { name: 'redirect_uri', label: 'Redirect URL', required: true, code: true, placeholder: 'https://app.example.org/callback', hint: html`Where codes and tokens are sent. Requests must match it exactly. Use <code>${outOfBand}</code> to show the code on a page.` })}
${checkBox(create, { name: 'public', label: 'Public application', hint: 'For programs that cannot keep a secret, such as desktop and mobile applications. It has no client secret and must use PKCE.' })}`,
  submit: submitButton('Create application'),
})}`,
  };
}

function addApplication(visit: Visit, sent: SentFields): Promise<View | Response> {
  return orShowAgain(visit, sent, showNewApplication, () => {
    const parsed = parseNewApplication({
      name: textOf(sent, 'name'),
      redirectUri: textOf(sent, 'redirect_uri'),
      isPublic: textOf(sent, 'public') === 'true',
    });
    const { application, clientSecret } = createApplication(visit.services.db, {
      ownerId: visit.account.id,
      ...parsed,
    });
    return secretView(`${application.name} registered`, [
      ['Client ID', copyText(application.clientId, 'Copy ID')],
      [
        'Client secret',
        clientSecret === undefined
          ? html`None. The application must use PKCE.`
          : copyText(clientSecret, 'Copy secret'),
      ],
      ['Redirect URL', html`<code>${application.redirectUri}</code>`],
    ]);
  });
}

const getOwnApplication = (visit: Visit) =>
  getByParam(visit, 'application', id => findOwnApplication(visit.services.db, visit.account.id, id));

function createSecret(visit: Visit): View {
  const application = getOwnApplication(visit);
  if (application.clientSecretDigest === null) throw refusal('not_found');
  const secret = replaceClientSecret(visit.services.db, application);
  return secretView(`New secret for ${application.name}`, [
    ['Client secret', copyText(secret, 'Copy secret')],
  ]);
}

function removeApplication(visit: Visit): Response {
  const application = getOwnApplication(visit);
  deleteApplication(visit.services.db, application);
  return respondRedirect(PATH, { message: `${application.name} deleted.` });
}

function revokeToken(visit: Visit): Response {
  const id = parseId(visit.params.token ?? '');
  if (id === undefined || !deleteToken(visit.services.db, visit.account.id, id)) throw refusal('not_found');
  return respondRedirect(PATH, { message: 'Access revoked.' });
}
