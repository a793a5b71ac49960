// The notifications of a project (webhooks and commit statuses). deliveries.ts shows what each has sent.

import { html } from 'hono/html';
import { notifications } from '../../api/notifications.ts';
import { type presentCreatedNotification, presentNotification } from '../../contract/records/notification.ts';
import { copyText, emptyState, linkButton, olderLink, propertyList, table } from '../frame/components.ts';
import { actionButton, formTo, renderForm, selectField, submitButton, textField } from '../frame/form.ts';
import { action, page, type Route } from '../frame/route.ts';
import { type Html, performPage, type View } from '../frame/visit.ts';
import {
  deliveryPages,
  type NotificationVisit,
  notificationPath,
  receiverOf,
  reportedBy,
  showDeliveries,
  typeLabels,
} from './deliveries.ts';
import { isOwner, type ProjectVisit, projectPath, projectView } from './frame.ts';
import { guessForge, renderStatusForm } from './status-form.ts';

const PATH = '/ui/projects/:project_id/notifications';

type NotificationRecord = ReturnType<typeof presentNotification>;
type CreatedRecord = ReturnType<typeof presentCreatedNotification>;

export const notificationPages: Route[] = [
  page(PATH, showNotifications),
  page(`${PATH}/new`, showNewNotification),
  action(`${PATH}/new`, notifications.create, {
    showForm: showNewNotification,
    prepare: sent => sent.set('name', 'webhook'),
    done: showSecret,
  }),
  page(`${PATH}/new-statuses`, showNewStatuses),
  action(`${PATH}/new-statuses`, notifications.create, {
    showForm: showNewStatuses,
    prepare: sent => sent.set('name', 'commit_status').set('notifiable_type', 'build'),
    done: (visit, created) => ({
      to: projectPath(visit, `/notifications/${created.id_str}`),
      message: 'Commit statuses are reported from the next build on.',
    }),
  }),
  ...deliveryPages,
  page(`${PATH}/:notification_id/edit`, showEdit),
  action(`${PATH}/:notification_id/edit`, notifications.update, {
    showForm: showEdit,
    done: visit => ({ to: notificationPath(visit), message: 'Notification saved.' }),
  }),
  action(`${PATH}/:notification_id/test`, notifications.test, {
    showForm: showDeliveries,
    done: visit => ({ to: notificationPath(visit), message: 'The test was queued.' }),
  }),
  action(`${PATH}/:notification_id/enable`, notifications.enable, {
    showForm: showDeliveries,
    done: visit => ({
      to: notificationPath(visit),
      message: 'Notification enabled. Send a test to see whether the receiver responds.',
    }),
  }),
  action(`${PATH}/:notification_id/delete`, notifications.delete, {
    showForm: showNotifications,
    done: visit => ({
      to: projectPath(visit, '/notifications'),
      message: 'Notification deleted.',
    }),
  }),
];

async function showNotifications(visit: ProjectVisit): Promise<View> {
  const { items, next } = await performPage(visit, notifications.list, 100);
  const create = html`<div class="row">${linkButton(projectPath(visit, '/notifications/new'), 'New webhook', 'primary')}${linkButton(projectPath(visit, '/notifications/new-statuses'), 'New commit statuses')}</div>`;
  return projectView(visit, {
    tab: 'notifications',
    body:
      items.length === 0
        ? emptyState({
            title: 'No notifications yet',
            text: 'A webhook is called when the state of a build or a dependency changes, for example to post to a chat. Commit statuses show the result of each build next to the commit on GitHub, Gitea, GitLab or Bitbucket.',
            action: create,
          })
        : html`<div class="section-head"><h2>Notifications</h2>${create}</div>
${table({
  caption: 'Notifications',
  columns: ['Receiver', 'Reports', 'Actions'],
  rows: items.map(item => ({ cells: notificationCells(visit, item) })),
})}${olderLink(visit.url, next, 'Older notifications')}`,
  });
}

function notificationCells(visit: ProjectVisit, item: NotificationRecord): (Html | string)[] {
  const path = projectPath(visit, `/notifications/${item.id_str}`);
  const { options } = item;
  const receiver = receiverOf(options);
  return [
    html`<div><a class="name" href="${path}">${receiver}</a>${options.forge ? html`<div class="second"><code>${options.url}</code></div>` : ''}${item.error === undefined ? '' : html`<div class="why">Disabled: ${item.error}.</div>`}</div>`,
    reportedBy(item.notifiable_type, options),
    html`<div class="row"><a class="button plain" href="${path}">Deliveries</a><a class="button plain" href="${path}/edit">Edit</a>${options.forge && item.error ? '' : actionButton(formTo(visit, `${path}/test`), 'Send test')}${
      isOwner(visit)
        ? actionButton(formTo(visit, `${path}/delete`), 'Delete', {
            tone: 'danger',
            confirm: `Delete the notification to ${receiver}? Pending deliveries are dropped.`,
            yes: 'Delete notification',
            no: 'Keep notification',
          })
        : ''
    }</div>`,
  ];
}

function showNewNotification(visit: ProjectVisit): View {
  const create = formTo(visit, projectPath(visit, '/notifications/new'), { notifiable_type: 'build' });
  return projectView(visit, {
    tab: 'notifications',
    subpage: { heading: 'New webhook' },
    body: renderForm(create, {
      fields: html`${selectField(create, {
        name: 'notifiable_type',
        label: 'Events',
        required: true,
        choices: Object.entries(typeLabels).map(([value, label]) => ({ value, label })),
      })}
${textField(create, { name: 'options[url]', label: 'URL', required: true, code: true, placeholder: 'https://chat.example.org/hooks/ci', hint: 'Receives a signed POST with JSON for each event, following Standard Webhooks.' })}`,
      submit: html`${submitButton('Create webhook')} ${linkButton(projectPath(visit, '/notifications'), 'Back')}`,
    }),
  });
}

function showNewStatuses(visit: ProjectVisit): View {
  const { repositoryUrl } = visit.found.project;
  const create = formTo(visit, projectPath(visit, '/notifications/new-statuses'), {
    'options[forge]': guessForge(repositoryUrl),
    'options[contexts]': 'both',
  });
  return projectView(visit, {
    tab: 'notifications',
    subpage: { heading: 'New commit statuses' },
    body: renderStatusForm(create, repositoryUrl, {
      hasToken: false,
      submit: html`${submitButton('Create commit statuses')} ${linkButton(projectPath(visit, '/notifications'), 'Back')}`,
    }),
  });
}

function showEdit(visit: NotificationVisit): View {
  const { notification, project } = visit.found;
  const { options } = presentNotification(notification);
  const path = notificationPath(visit);
  const change = formTo(visit, `${path}/edit`, {
    'options[url]': options.url,
    'options[forge]': options.forge ?? '',
    'options[repository]': options.repository ?? '',
    'options[contexts]': options.contexts ?? '',
  });
  const submit = html`${submitButton('Save')} ${linkButton(path, 'Back')}`;
  return projectView(visit, {
    tab: 'notifications',
    subpage: { heading: options.forge ? 'Edit commit statuses' : 'Edit webhook' },
    body: options.forge
      ? renderStatusForm(change, project.repositoryUrl, { hasToken: true, submit })
      : renderForm(change, {
          fields: textField(change, {
            name: 'options[url]',
            label: 'URL',
            required: true,
            code: true,
            hint: 'The signing secret stays the same.',
          }),
          submit,
        }),
  });
}

function showSecret(visit: ProjectVisit, created: CreatedRecord): View {
  const path = projectPath(visit, `/notifications/${created.id_str}`);
  return projectView(visit, {
    tab: 'notifications',
    subpage: { heading: 'Webhook created' },
    body: html`<div class="panel"><p class="lead">Copy this secret to the receiver now. It is not shown again. The receiver uses it to verify that calls come from this server.</p>
${propertyList([
  ['URL', html`<code>${created.options.url}</code>`],
  ['Signing secret', copyText(created.signing_secret ?? '', 'Copy secret')],
])}</div>
<div class="row">${actionButton(formTo(visit, `${path}/test`), 'Send test')}${linkButton(path, 'Done', 'primary')}</div>`,
  });
}
