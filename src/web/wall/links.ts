// The links to the wall screen: creates, lists and revokes them. A token is shown once.

import { html } from 'hono/html';
import type { SentFields } from '../../api/http/body.ts';
import { refusal } from '../../domain/refusal.ts';
import { createWallLink, deleteWallLink, listWallLinks } from '../../store/wall-links.ts';
import { copyText, linkButton, pageHead, relativeTime, table } from '../frame/components.ts';
import { actionButton, formTo, renderForm, submitButton, textField } from '../frame/form.ts';
import { respondRedirect } from '../frame/layout.ts';
import { form, orShowAgain, page, type Route } from '../frame/route.ts';
import { getByParam, type Html, type View, type Visit } from '../frame/visit.ts';

const PATH = '/ui/wall/links';
const NAME_LENGTH = 100;

export const wallLinkPages: Route[] = [
  page(PATH, showLinks),
  form(PATH, createLink),
  form(`${PATH}/:wall_link/revoke`, revokeLink),
];

function showLinks(visit: Visit): View {
  const create = formTo(visit, PATH);
  return {
    title: 'Links to the wall screen',
    section: 'activity',
    body: html`${pageHead('Links to the wall screen', { parent: { href: '/ui/wall', label: 'Wall screen' } })}
<p class="lead">A link shows the wall screen of your projects without a sign-in, for a screen that everybody sees. It shows names, branches, states and authors, and nothing else. Anybody who knows the link can open it until you revoke it.</p>
<section aria-label="Links">${renderLinks(visit)}</section>
<section class="panel" aria-labelledby="new-link"><h2 id="new-link">New link</h2>
${renderForm(create, {
  fields: textField(create, {
    name: 'name',
    label: 'Name',
    required: true,
    placeholder: 'Screen in the kitchen',
    hint: 'Where the link is used, so that you know which one to revoke.',
  }),
  submit: submitButton('Create link'),
})}</section>`,
  };
}

function renderLinks(visit: Visit): Html {
  return table({
    caption: 'Links',
    columns: ['Name', 'Created', 'Last used', 'Actions'],
    rows: listWallLinks(visit.services.db, visit.account.id).map(link => ({
      cells: [
        link.name,
        relativeTime(link.createdAt),
        link.usedAt === null ? 'never' : relativeTime(link.usedAt),
        actionButton(formTo(visit, `${PATH}/${link.id}/revoke`), 'Revoke', {
          tone: 'danger',
          confirm: `Revoke the link ${link.name}? Screens that use it stop at once.`,
          yes: 'Revoke link',
          no: 'Keep link',
        }),
      ],
    })),
    empty: {
      title: 'No links yet',
      text: 'Create a link for each screen, so that you can revoke them one by one.',
    },
  });
}

function createLink(visit: Visit, sent: SentFields): Promise<View | Response> {
  return orShowAgain(visit, sent, showLinks, () => {
    const value = sent.get('name');
    const name = typeof value === 'string' ? value.trim() : '';
    if (name === '') throw refusal('is_blank', 'name');
    if (name.length > NAME_LENGTH) throw refusal('invalid_format', 'name');
    const token = createWallLink(visit.services.db, visit.account.id, name);
    return {
      title: 'New link to the wall screen',
      section: 'activity',
      body: html`${pageHead('Link created', { parent: { href: PATH, label: 'Links to the wall screen' } })}
<div class="panel"><p class="lead">Open this address on ${name}. Copy it now: it is not shown again.</p>${copyText(`${visit.services.baseUrl}/ui/wall/${token}`, 'Copy link')}</div>
<p>${linkButton(PATH, 'Done', 'primary')}</p>`,
    };
  });
}

function revokeLink(visit: Visit): Response {
  const { db } = visit.services;
  const link = getByParam(visit, 'wall_link', id => deleteWallLink(db, visit.account.id, id));
  return respondRedirect(PATH, { message: `Link ${link.name} revoked.` });
}
