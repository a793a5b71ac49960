// Triggers, which start builds: their types and options, and which refs they build.

import { compileGlob } from '../text/glob.ts';

export const triggerTypes = ['push', 'poll', 'schedule'] as const;
export type TriggerType = (typeof triggerTypes)[number];

/** What starts a build request: a trigger, or somebody with a working tree. */
export const requestTriggers = [...triggerTypes, 'local'] as const;
export type RequestTrigger = (typeof requestTriggers)[number];

/** `new` until its first delivery, look or firing; `failing` after three failed looks in a row. */
export const triggerStates = ['new', 'ok', 'failing'] as const;
export type TriggerState = (typeof triggerStates)[number];

/** Globs, separated by white space. A trigger builds a branch or a tag that matches one of them. */
type RefFilters = { branches: string; tags: string };

/** Options as the API shows them. Durations are in seconds, `late` is in minutes. */
export type TriggerOptions = {
  push: RefFilters & { pull_requests: boolean; pull_request_variables: boolean; reconcile: number };
  poll: RefFilters & { interval: number; build_first: boolean };
  schedule: { cron: string; time_zone: string; branch: string; only_new: boolean; late: number };
};

export const defaultOptions: TriggerOptions = {
  push: { branches: '*', tags: '', pull_requests: false, pull_request_variables: false, reconcile: 21_600 },
  poll: { branches: '*', tags: '', interval: 120, build_first: false },
  schedule: { cron: '', time_zone: 'UTC', branch: '', only_new: false, late: 60 },
};

/** `looking` until the repository has been asked; `looked` if a look without a ref found changes, which have firings of their own. */
export const firingOutcomes = ['requested', 'unchanged', 'ignored', 'looking', 'looked', 'failed'] as const;
export type FiringOutcome = (typeof firingOutcomes)[number];

/** Why a firing was ignored. */
export const ignoredReasons = [
  'event',
  'ping',
  'deleted',
  'filtered',
  'first_look',
  'too_many',
  'still_running',
  'too_late',
  'owner_inactive',
] as const;
export type IgnoredReason = (typeof ignoredReasons)[number];

/** A pull request from a fork that was opened or changed. `ref` is where its commits can be fetched. */
export type ForkedPull = { number: number; ref: string; hash: string };

const BRANCH = 'refs/heads/';
const TAG = 'refs/tags/';

/** `refs/heads/main` is the branch `main`. Undefined for any ref that is neither a branch nor a tag. */
export function parseRef(ref: string): { kind: 'branch' | 'tag'; name: string } | undefined {
  if (ref.startsWith(BRANCH)) return { kind: 'branch', name: ref.slice(BRANCH.length) };
  if (ref.startsWith(TAG)) return { kind: 'tag', name: ref.slice(TAG.length) };
  return undefined;
}

/** Whether a trigger with these filters builds the ref. */
export const wantsRef = (filters: RefFilters, ref: string): boolean => compileFilters(filters)(ref);

/** `wantsRef` for many refs. */
export function compileFilters(filters: RefFilters): (ref: string) => boolean {
  const branches = globsOf(filters.branches).map(compileGlob);
  const tags = globsOf(filters.tags).map(compileGlob);
  return ref => {
    const parsed = parseRef(ref);
    if (!parsed) return false;
    return (parsed.kind === 'branch' ? branches : tags).some(matches => matches(parsed.name));
  };
}

export const globsOf = (filter: string): string[] => filter.split(/\s+/).filter(glob => glob !== '');
