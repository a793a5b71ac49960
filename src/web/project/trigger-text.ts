// Triggers and their firings in plain words: what a trigger does, and why something was or was not built.

import type { presentFiring, presentTrigger } from '../../contract/records/trigger.ts';
import { describeCron } from '../../domain/trigger/cron.ts';
import {
  globsOf,
  type IgnoredReason,
  parseRef,
  type TriggerOptions,
  type TriggerType,
} from '../../domain/trigger/trigger.ts';
import { LOOK } from '../../store/trigger/firings.ts';

export type TriggerRecord = ReturnType<typeof presentTrigger>;
export type FiringRecord = ReturnType<typeof presentFiring>;

export const SCHEDULE = 'schedule';
const GLOBS_SHOWN = 3;

/** The ways to start builds, also offered for a new project. */
export const triggerChoices: Record<TriggerType, { label: string; hint: string; name: string }> = {
  push: {
    label: 'On every push (recommended)',
    hint: 'The forge calls Assay when somebody pushes, and the build starts at once. The forge must be able to reach this server.',
    name: 'Push',
  },
  poll: {
    label: 'By polling the repository',
    hint: 'Assay checks the repository for new commits every few minutes. This works with any repository, even if nothing can reach this server.',
    name: 'Poll',
  },
  schedule: {
    label: 'On a schedule',
    hint: 'For example every night. A schedule can be used in addition to one of the others.',
    name: 'Nightly',
  },
};

export const byHand = {
  label: 'Only by hand or over the API',
  hint: 'No setup is needed: enter a branch on the project’s page, or send a build request to the API.',
};

const units: [name: string, seconds: number][] = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
];

/** "2 minutes" for 120. */
export function formatSeconds(seconds: number): string {
  const [name, size] = units.find(([, size]) => seconds % size === 0) ?? ['second', 1];
  return `${seconds / size} ${name}${seconds === size ? '' : 's'}`;
}

const every = (seconds: number) => `every ${formatSeconds(seconds).replace(/^1 /, '')}`;

function describeGlobs(filter: string, one: string): string {
  const globs = globsOf(filter);
  if (globs.length === 0) return '';
  if (globs.includes('*')) return `any ${one}`;
  const more = globs.length - GLOBS_SHOWN;
  return `${globs.slice(0, GLOBS_SHOWN).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

function describeFilters({ branches, tags }: { branches: string; tags: string }): string {
  const tagGlobs = describeGlobs(tags, 'tag');
  const named = tagGlobs === '' || tagGlobs === 'any tag' ? tagGlobs : `tags ${tagGlobs}`;
  return [describeGlobs(branches, 'branch'), named].filter(Boolean).join(' and ');
}

const describers: { [Type in TriggerType]: (options: TriggerOptions[Type]) => string } = {
  push: options =>
    `every push to ${describeFilters(options) || 'nothing, because no branch and no tag is set'}`,
  poll: options =>
    `checks ${describeFilters(options) || 'nothing, because no branch and no tag is set,'} ${every(options.interval)}`,
  schedule: ({ cron, time_zone, branch, only_new }) =>
    `${describeCron(cron) ?? cron} ${time_zone}: ${branch}${only_new ? ', if it has a new commit' : ''}`,
};

/** "every push to main", "checks any branch every 2 minutes", "every day at 03:00 Europe/Berlin: main". */
export function describeTrigger({ trigger_type: type, options }: TriggerRecord): string {
  return (describers[type] as (options: unknown) => string)(options);
}

/** A disabled trigger does nothing, whatever its last look found. */
export const shownState = ({ enabled, state }: TriggerRecord) => (enabled ? state : 'disabled');

/** "pull request 7", for the places where forges keep the commits of pull requests. */
export function pullRequestOf(ref: string): string | undefined {
  const number = /^refs\/(?:pull|merge-requests|pull-requests)\/(\d+)\//.exec(ref)?.[1];
  return number === undefined ? undefined : `pull request ${number}`;
}

/** "branch main". */
function describeRef(ref: string | null): string {
  if (ref === null) return 'repository';
  const { kind, name } = parseRef(ref) ?? { kind: 'ref', name: ref };
  return pullRequestOf(ref) ?? `${kind} ${name}`;
}

const ignored: Record<IgnoredReason, (firing: FiringRecord, trigger: TriggerRecord) => string> = {
  event: ({ event }) =>
    `The event “${event}” starts no builds; only pushes do. You can turn this event off in the forge.`,
  ping: () => 'The forge tested the connection, and it works. The next push starts a build.',
  deleted: ({ ref }) => `The ${describeRef(ref)} was deleted, so there is nothing to build.`,
  filtered: ({ ref }, { trigger_type: type, options }) => {
    if (ref !== null && pullRequestOf(ref))
      return 'This trigger builds no pull requests from forks. Change the settings below to build them.';
    const kind = ref === null ? undefined : parseRef(ref)?.kind;
    if (type === 'schedule' || !kind) return `The ${describeRef(ref)} does not match the settings.`;
    const filter = kind === 'tag' ? options.tags : options.branches;
    const why =
      globsOf(filter).length === 0
        ? `This trigger builds no ${kind === 'tag' ? 'tags' : 'branches'}`
        : `The ${describeRef(ref)} does not match “${filter}”`;
    return `${why}. Change the settings below to build it.`;
  },
  first_look: () =>
    'This was the first check of the repository: its branches and tags were recorded, but not built. Later changes are built.',
  too_many: ({ ref }) =>
    `Too many branches and tags changed at once, so the ${describeRef(ref)} was not built. Start its build by hand if you need it.`,
  still_running: () => 'The previous build had not finished.',
  too_late: (_, { options }) =>
    `The server was off or busy at that time, and could only have started the build more than ${formatSeconds(options.late * 60)} late.`,
  owner_inactive: () =>
    'The account of the project’s owner is suspended or requires payment. Builds start again once an administrator has changed that.',
};

/** Why a firing has its outcome. */
export function describeFiring(firing: FiringRecord, trigger: TriggerRecord): string {
  const { outcome, reason, ref, event } = firing;
  switch (outcome) {
    case 'requested':
      return event === LOOK ? 'The check found a new commit.' : '';
    case 'unchanged':
      if (event === SCHEDULE)
        return `The ${describeRef(ref)} has no new commit since the last build of this schedule.`;
      return ref === null
        ? 'Nothing has changed since the last check.'
        : `This commit of the ${describeRef(ref)} was already known, so it was not built again.`;
    case 'looking':
      return reason === null
        ? 'Checking the repository for changes.'
        : `The repository could not be read. Assay will try again. ${reason}`;
    case 'looked':
      return 'The repository was checked. Each change has a row of its own.';
    case 'failed':
      return reason ?? 'The reason is not known.';
    case 'ignored':
      return reason !== null && reason in ignored
        ? ignored[reason as IgnoredReason](firing, trigger)
        : (reason ?? '');
  }
}

/** "Mon, 16 Nov 2026, 03:00" in the time zone. An unknown zone is shown as UTC. */
export function formatPlanned(ms: number, timeZone: string): string {
  const style = {
    weekday: 'short',
    day: 'numeric',
    month: 'short',
    year: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
  } as const;
  try {
    return new Intl.DateTimeFormat('en-GB', { ...style, timeZone }).format(ms);
  } catch {
    // The zone database may have changed since the trigger was created.
    return `${new Intl.DateTimeFormat('en-GB', { ...style, timeZone: 'UTC' }).format(ms)} UTC`;
  }
}
