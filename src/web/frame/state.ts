// How states look: each has a label, a shape and a tone, so that no state is shown by colour alone.

import { html, raw } from 'hono/html';
import type { Html } from './visit.ts';

type Tone = 'good' | 'bad' | 'warn' | 'busy' | 'waiting' | 'off' | 'aside' | 'idle';

const states: Record<string, [label: string, tone: Tone]> = {
  new: ['New', 'idle'],
  enqueued: ['Enqueued', 'waiting'],
  fetching: ['Fetching', 'busy'],
  waiting: ['Waiting', 'waiting'],
  waiting_for_builds: ['Waiting for builds', 'waiting'],
  building: ['Building', 'busy'],
  running: ['Running', 'busy'],
  passed: ['Passed', 'good'],
  failed: ['Failed', 'bad'],
  errored: ['Errored', 'warn'],
  timed_out: ['Timed out', 'warn'],
  canceled: ['Canceled', 'off'],
  skipped: ['Skipped', 'aside'],
  deploying: ['Deploying', 'busy'],
  deployed: ['Deployed', 'good'],
  private: ['Private', 'idle'],
  waiting_archive_upload: ['Waiting for an archive', 'idle'],
  enqueued_for_compile: ['Waiting to compile', 'waiting'],
  compiling: ['Compiling', 'busy'],
  compiled: ['Compiled', 'good'],
  compile_failed: ['Compile failed', 'bad'],
  shared: ['Shared', 'good'],
  pending: ['Pending', 'waiting'],
  delivered: ['Delivered', 'good'],
  superseded: ['Superseded', 'aside'],
  done: ['Done', 'good'],
  runs: ['Runs', 'good'],
  would_run: ['Would run', 'good'],
  would_not_run: ['Would not run', 'aside'],
  does_not_run: ['Does not run', 'aside'],
  holds: ['Met', 'good'],
  does_not_hold: ['Not met', 'off'],
  undecided: ['Undecided', 'idle'],
  ok: ['Works', 'good'],
  failing: ['Failing', 'bad'],
  disabled: ['Disabled', 'off'],
  requested: ['Build requested', 'good'],
  unchanged: ['Nothing new', 'aside'],
  ignored: ['Not built', 'aside'],
  looking: ['Checking', 'busy'],
  looked: ['Checked', 'good'],
  waiting_for_delivery: ['Waiting for the first delivery…', 'waiting'],
  received: ['Received and verified', 'good'],
  refused: ['Received, but the signature was wrong', 'bad'],
  available: ['Available', 'good'],
  unavailable: ['Unavailable:', 'warn'],
  low: ['Low:', 'warn'],
  node_ready: ['Ready', 'good'],
  node_paused: ['Paused', 'off'],
  node_drained: ['Drained', 'off'],
  node_not_ready: ['Not set up', 'warn'],
  node_without_slots: ['No slots', 'aside'],
  node_down: ['Down', 'bad'],
  active: ['Active', 'good'],
  suspended: ['Suspended', 'off'],
  payment_required: ['Payment required', 'warn'],
};

/** Shapes on a 16 by 16 grid. `mark` is drawn on top of a filled shape, `line` is an outline. */
const shapes: Record<Tone, string> = {
  good: '<circle cx="8" cy="8" r="7"/><path class="mark" d="m4.7 8.3 2.3 2.3 4.4-4.9"/>',
  bad: '<rect x="1.2" y="1.2" width="13.6" height="13.6" rx="3"/><path class="mark" d="m5.2 5.2 5.6 5.6m0-5.6-5.6 5.6"/>',
  warn: '<path d="M8 1.1a1 1 0 0 1 .9.5l6.3 11.5a1 1 0 0 1-.9 1.5H1.7a1 1 0 0 1-.9-1.5L7.1 1.6a1 1 0 0 1 .9-.5z"/><path class="mark" d="M8 5.8v3.7m0 2.3v.1"/>',
  busy: '<circle class="line faint" cx="8" cy="8" r="6"/><path class="line turning" d="M8 2a6 6 0 0 1 6 6"/>',
  waiting: '<circle class="line" cx="8" cy="8" r="6.2"/><path class="line" d="M8 4.6V8l2.3 1.7"/>',
  off: '<circle class="line" cx="8" cy="8" r="6.2"/><path class="line" d="m3.8 12.2 8.4-8.4"/>',
  aside: '<circle class="line" cx="8" cy="8" r="6.2"/><path class="line" d="M5.2 8h5.6"/>',
  idle: '<circle class="line dotted" cx="8" cy="8" r="6.2"/>',
};

export function stateLabel(state: string): string {
  return states[state]?.[0] ?? state.replaceAll('_', ' ');
}

export function toneOf(state: string): Tone {
  return states[state]?.[1] ?? 'idle';
}

/** A state as shape and label. `note` is appended to the label, for example an exit code. */
export function stateBadge(state: string, note = ''): Html {
  const tone = toneOf(state);
  return html`<span class="state ${tone}">${stateIcon(tone)}<span>${stateLabel(state)}${note && ` ${note}`}</span></span>`;
}

/** The shape alone, for narrow places. The label is there for screen readers, and `title` on hover. */
export function stateMark(state: string, title = stateLabel(state)): Html {
  const tone = toneOf(state);
  return html`<span class="state ${tone}" title="${title}">${stateIcon(tone)}<span class="sr">${stateLabel(state)}</span></span>`;
}

function stateIcon(tone: Tone): Html {
  return html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">${raw(shapes[tone])}</svg>`;
}

const colours: Record<Tone, string> = {
  good: '#1f8a48',
  bad: '#c9352a',
  warn: '#c98a10',
  busy: '#2272bd',
  waiting: '#857c6d',
  off: '#857c6d',
  aside: '#857c6d',
  idle: '#b07d1e',
};

/** The same shapes as a page icon, with inline colours, since style sheets do not apply to it. */
export function favicon(tone: string): string | undefined {
  if (!(tone in shapes)) return undefined;
  const colour = colours[tone as Tone];
  const drawn = shapes[tone as Tone]
    .replaceAll('class="mark"', 'fill="none" stroke="#fff" stroke-width="2" stroke-linecap="round"')
    .replaceAll('class="line faint"', `fill="none" stroke="${colour}" stroke-opacity=".3" stroke-width="2.4"`)
    .replaceAll(
      /class="line[^"]*"/g,
      `fill="none" stroke="${colour}" stroke-width="2.4" stroke-linecap="round"`,
    );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="${colour}">${drawn}</svg>`;
}
