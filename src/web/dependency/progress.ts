// The progress of a compile on the page of its dependency: its steps, with the time so far and the time of the last
// compile. log.js keeps the times and the bar moving between events.

import { html } from 'hono/html';
import { KEEP_STEP, UNPACK_STEP } from '../../domain/container/compile-plan.ts';
import { COMMAND_STEP } from '../../domain/container/entry-script.ts';
import { COMPILE_CANCELED, UNFINISHED_COMPILES } from '../../domain/dependency.ts';
import { type Dependency, stepsOf, timesOfLastCompile } from '../../store/dependencies.ts';
import { formatDuration } from '../frame/components.ts';
import { stateMark } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';

const labels: readonly [name: string, label: string][] = [
  [UNPACK_STEP, 'Unpack archive'],
  [COMMAND_STEP, 'Run command'],
  [KEEP_STEP, 'Keep files'],
];

type Step = {
  label: string;
  state: 'pending' | 'running' | 'done' | 'failed' | 'canceled' | 'skipped';
  /** How long it took, or takes so far; undefined if it has not begun. */
  ms: number | undefined;
  /** How long it took in the last successful compile. */
  lastMs: number | undefined;
};

/** The steps of the current or the last compile. Empty if there is nothing to show: none ran, or it was reused. */
export function describeSteps(dependency: Dependency, now: number): Step[] {
  const { compileState } = dependency;
  const isUnfinished = UNFINISHED_COMPILES.includes(compileState);
  const begun = stepsOf(dependency);
  if (begun.length === 0 && !isUnfinished) return [];
  const lastTimes = timesOfLastCompile(dependency);
  const ending =
    compileState === 'compiling'
      ? 'running'
      : compileState === 'compiled'
        ? 'done'
        : dependency.error === COMPILE_CANCELED
          ? 'canceled'
          : 'failed';
  return labels.map(([name, label]) => {
    const step = begun.find(one => one.name === name);
    return {
      label,
      state: step ? (step === begun.at(-1) ? ending : 'done') : isUnfinished ? 'pending' : 'skipped',
      ms: step && Math.max(0, (step.endedAt ?? now) - step.beganAt),
      lastMs: lastTimes.find(one => one.name === name)?.ms,
    };
  });
}

/** `waiting` is the position of a queued compile, and why it does not start yet. */
export function renderProgress(
  dependency: Dependency,
  now: number,
  waiting: { position: number; reason: string } | undefined,
): Html | string {
  const steps = describeSteps(dependency, now);
  if (steps.length === 0) return isReused(dependency) ? REUSED : '';
  const isFinished = dependency.finishedAt !== null;
  // The last successful compile is this one, once it has succeeded.
  const hasLast = dependency.compileState !== 'compiled' && steps.some(({ lastMs }) => lastMs !== undefined);
  const current = steps.findIndex(({ state }) => state === 'running');
  return html`<section class="panel" aria-labelledby="compile-head"><h2 id="compile-head">${isFinished ? 'Last compile' : 'Compile'}${dependency.node === null ? '' : html` <span class="quiet">on <code>${dependency.node}</code></span>`}</h2>
${isFinished ? '' : html`<div class="compile-bar">${dependency.compileState === 'compiling' ? renderBar(dependency, steps, now) : waiting ? `Number ${waiting.position} in the queue: ${waiting.reason}` : ''}</div>`}
<p class="sr" data-announce>${current < 0 ? '' : `Step ${current + 1} of ${steps.length}: ${steps[current]?.label}`}</p>
<table class="compile-steps"><caption class="sr">Steps of the compile</caption>
<thead><tr><th scope="col">Step</th><th scope="col">Time</th>${hasLast ? html`<th scope="col">Last time</th>` : ''}</tr></thead>
<tbody>${steps.map(
    ({ label, state, ms, lastMs }) =>
      html`<tr><th scope="row">${stateMark(state)} ${label}</th><td class="number">${ms === undefined ? '–' : state === 'running' ? runningTime(ms) : formatDuration(ms)}</td>${hasLast ? html`<td class="number quiet">${lastMs === undefined ? '–' : formatDuration(lastMs)}</td>` : ''}</tr>`,
  )}</tbody></table></section>`;
}

/** Whether the last compile used an earlier one. Compiles of older versions of Assay have no steps either. */
const isReused = ({ compileState, compileSteps }: Dependency) =>
  compileState === 'compiled' && compileSteps !== null;
const REUSED = html`<p class="panel quiet">Nothing has changed, so an earlier compile is reused. To compile it anyway, use “Compile from scratch”.</p>`;

const runningTime = (ms: number): Html =>
  html`<span class="number" data-running-ms="${ms}">${formatDuration(ms)}</span>`;

/** An estimate by the times of the last compile: a step that takes longer than last time stops the bar, not the clock. */
function renderBar(dependency: Dependency, steps: readonly Step[], now: number): Html {
  const elapsed = runningTime(Math.max(0, now - (dependency.startedAt ?? now)));
  const totalMs = steps.reduce((sum, { lastMs }) => sum + (lastMs ?? 0), 0);
  if (totalMs === 0) return html`<span>for ${elapsed}</span>`;
  let value = 0;
  let limit = 0;
  for (const { state, ms, lastMs = 0 } of steps) {
    if (state === 'pending') break;
    value += state === 'running' ? Math.min(ms ?? 0, lastMs) : lastMs;
    limit += lastMs;
  }
  return html`<progress max="${totalMs}" value="${value}" data-running-until="${limit}" aria-label="Compile"></progress> <span>${elapsed} of about ${formatDuration(totalMs)}</span>`;
}
