// The fields of triggers: those of each type, with the next times of a schedule.

import { html } from 'hono/html';
import { upcoming } from '../../domain/trigger/cron.ts';
import type { TriggerOptions, TriggerType } from '../../domain/trigger/trigger.ts';
import { relativeTime } from '../frame/components.ts';
import { checkBox, type Form, selectField, textField } from '../frame/form.ts';
import type { Html } from '../frame/visit.ts';
import type { ProjectVisit } from './frame.ts';
import { formatPlanned, formatSeconds } from './trigger-text.ts';

const UPCOMING = 5;

export const initialOptions = (options: object) =>
  Object.fromEntries(Object.entries(options).map(([name, value]) => [`options[${name}]`, String(value)]));

/** `address` is where a schedule's next times are asked for. `shown` is the schedule whose times the page shows already. */
type Times = { address: string; shown?: TriggerOptions['schedule'] };

export function triggerFields(visit: ProjectVisit, form: Form, type: TriggerType, times: Times): Html {
  const name = textField(form, { name: 'name', label: 'Name', required: true });
  return html`${name}
${type === 'schedule' ? scheduleFields(visit, form, times) : html`${filterFields(form)}${type === 'push' ? pushFields(form) : pollFields(form)}`}`;
}

const filterFields = (form: Form) =>
  html`${textField(form, { name: 'options[branches]', label: 'Branches', code: true, hint: html`Patterns, separated by spaces: <code>main release/*</code>. <code>*</code> is every branch.` })}
${textField(form, { name: 'options[tags]', label: 'Tags', code: true, placeholder: 'v*', hint: 'Leave it empty to build no tags. A tag usually names a commit that was already built on its branch.' })}`;

const durations = (form: Form, name: string, seconds: readonly number[]) => {
  const current = Number(form.value(name));
  const all = Number.isInteger(current) && current > 0 ? [...new Set([...seconds, current])] : seconds;
  return all.toSorted((a, b) => a - b);
};

const pushFields = (form: Form) =>
  html`${checkBox(form, { name: 'options[pull_requests]', label: 'Pull requests from forks', hint: 'These builds run code of people who cannot push to the repository. They do not get the variables of the suites.' })}
${checkBox(form, { name: 'options[pull_request_variables]', label: 'Give pull requests the variables of the suites', hint: 'Turn this on only if everyone who can open a pull request may read them.' })}
${selectField(form, {
  name: 'options[reconcile]',
  label: 'Check for missed pushes',
  required: true,
  hint: 'Some calls never arrive, for example while this server is down. Regular checks of the repository find the pushes that were missed.',
  choices: [
    { value: '0', label: 'never' },
    ...durations(form, 'options[reconcile]', [3_600, 21_600, 86_400]).map(value => ({
      value: String(value),
      label: `every ${formatSeconds(value)}`,
    })),
  ],
})}`;

const pollFields = (form: Form) =>
  html`${selectField(form, {
    name: 'options[interval]',
    label: 'Check every',
    required: true,
    choices: durations(form, 'options[interval]', [30, 60, 120, 300, 600, 1_800, 3_600, 86_400]).map(
      value => ({
        value: String(value),
        label: formatSeconds(value),
      }),
    ),
  })}
${checkBox(form, { name: 'options[build_first]', label: 'Build the default branch at the first check', hint: 'Otherwise the first check only records the branches and tags, and only later changes are built.' })}`;

/** Every zone that the server knows, and the one that is set. */
function timeZones(current: string): string[] {
  const known = ['UTC', ...Intl.supportedValuesOf('timeZone')];
  return known.includes(current) || current === '' ? known : [...known, current];
}

function scheduleFields(visit: ProjectVisit, form: Form, { address, shown }: Times): Html {
  const [cron, zone] = [form.value('options[cron]'), form.value('options[time_zone]')];
  const isShown = cron === shown?.cron && zone === shown.time_zone;
  return html`${textField(form, { name: 'options[branch]', label: 'Branch', required: true, code: true })}
<div class="row">${textField(form, { name: 'options[cron]', label: 'Cron expression', required: true, code: true, hint: html`Minute, hour, day, month, weekday.` })}
${selectField(form, { name: 'options[time_zone]', label: 'Time zone', required: true, hint: 'Follows daylight saving time.', choices: timeZones(zone).map(value => ({ value, label: value })) })}</div>
<p class="hint"><code>0 3 * * *</code> every day at 03:00 · <code>30 6 * * MON-FRI</code> on weekdays at 06:30 · <code>0 */4 * * *</code> every four hours · <code>@weekly</code> Sunday at 00:00</p>
<div class="field" role="status" id="times" data-times="${address}">${isShown ? '' : renderUpcoming(visit, cron, zone)}</div>
<p><button class="button plain" type="submit" formaction="${address}" formnovalidate data-show-times>Show next times</button></p>
${checkBox(form, { name: 'options[only_new]', label: 'Only new commits', hint: 'Skip the build if the branch has no new commit since the last build of this schedule.' })}
${selectField(form, {
  name: 'options[late]',
  label: 'If a scheduled build was missed',
  required: true,
  hint: 'The server may be off at a scheduled time. At most one missed build is started later, however many there were.',
  choices: [
    { value: '0', label: 'skip it' },
    ...durations(form, 'options[late]', [15, 60, 360, 1_440]).map(minutes => ({
      value: String(minutes),
      label: `start it up to ${formatSeconds(minutes * 60)} late`,
    })),
  ],
})}`;
}

/** When an expression fires next, so that people see what they wrote. */
function renderUpcoming({ services: { db } }: ProjectVisit, cron: string, zone: string): Html {
  const times = upcoming(cron, zone, db.now(), UPCOMING);
  return times.length === 0
    ? html`<p class="quiet">${cron === '' ? 'Enter an expression to see the next scheduled times.' : 'This expression never matches a time.'}</p>`
    : renderTimes(times, zone);
}

export const renderTimes = (times: readonly number[], zone: string): Html =>
  html`<p class="times-head">Next times, ${zone}</p><ol class="times">${times.map(
    time => html`<li>${formatPlanned(time, zone)} <span class="quiet">${relativeTime(time)}</span></li>`,
  )}</ol>`;
