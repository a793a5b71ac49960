// The tab of a build with what changed since an earlier build of its suite, the likeliest cause of a failure first.

import { html } from 'hono/html';
import { diff } from '../../api/result/diff.ts';
import { Refusal } from '../../domain/refusal.ts';
import type { Cause } from '../../domain/result/build-diff.ts';
import { formatCount } from '../../domain/text/count.ts';
import { type Build, findBuild, findBuildRequest, findCommit } from '../../store/builds.ts';
import { type ComparableBuild, listComparable } from '../../store/result/comparable-builds.ts';
import {
  emptyState,
  formatDuration,
  formatSize,
  type Row,
  relativeTime,
  table,
} from '../frame/components.ts';
import { page, type Route } from '../frame/route.ts';
import { stateBadge, stateLabel } from '../frame/state.ts';
import { type Html, perform } from '../frame/visit.ts';
import { type BuildVisit, buildHref, buildView } from './build-frame.ts';

type Diff = Awaited<ReturnType<typeof diff.get.handle>>;

const CHOICES = 30;
const HASH_DIGITS = 10;

export const changesTabPages: Route[] = [
  page('/ui/projects/:project_id/builds/:build_id/changes', async visit =>
    buildView(visit, { tab: 'changes', body: await renderChanges(visit) }),
  ),
];

async function renderChanges(visit: BuildVisit): Promise<Html> {
  const { services, found, url } = visit;
  const { build } = found;
  const against = url.searchParams.get('against') ?? '';
  const choices = listComparable(services.db, build, CHOICES);
  let record: Diff;
  try {
    record = await perform(visit, diff.get, { query: against === '' ? {} : { against } });
  } catch (error) {
    if (!(error instanceof Refusal) || against !== '') throw error;
    return html`${emptyState({
      title: 'Nothing to compare with',
      text: 'A build is compared with the newest build of its suite that passed before it on the same branch, or else at an earlier commit: commits, command, image, variables, dependencies and tests. No such build has passed yet.',
    })}${choices.length > 0 ? renderChoice(choices, undefined) : ''}`;
  }
  const base = findBuild(services.db, build.projectId, BigInt(record.against.id_str)) as Build;
  return html`${renderBase(visit, record, base, choices)}
${renderCauses(record)}
${renderInputs(record, base, build)}
${renderCommits(record)}
${renderTests(visit, record)}
${renderLog(visit, record)}`;
}

const chosenBecause: Record<string, string> = {
  branch: 'the last build before this one that passed on the same branch',
  ancestor: 'the build that passed at the nearest earlier commit',
  caller: 'the build that you chose',
};

function renderBase(
  { services }: BuildVisit,
  record: Diff,
  base: Build,
  choices: readonly ComparableBuild[],
): Html {
  const commit = findCommit(services.db, base.projectId, base.commitId);
  const request = findBuildRequest(services.db, base.projectId, base.buildRequestId);
  const subject = commit?.message.split('\n', 1)[0] ?? '';
  const isListed = choices.some(({ build }) => build.id === base.id);
  const listed = isListed ? choices : [{ build: base, branch: request?.branch ?? '' }, ...choices];
  return html`<div class="compared">
<p>Compared with ${chosenBecause[record.chosen] ?? ''}: ${stateBadge(base.buildState)} <a href="${buildHref(base)}"><code>${base.commitRef.slice(0, HASH_DIGITS)}</code> ${subject}</a>${base.finishedAt === null ? '' : html`, ${relativeTime(base.finishedAt, services.db.now())}`}</p>
${renderChoice(listed, base)}
</div>`;
}

function renderChoice(choices: readonly ComparableBuild[], base: Build | undefined): Html {
  const describe = ({ build, branch }: ComparableBuild) =>
    [
      stateLabel(build.buildState),
      build.commitRef.slice(0, HASH_DIGITS),
      ...(branch === '' ? [] : [branch]),
      `${new Date(build.finishedAt ?? build.createdAt).toISOString().slice(0, 16).replace('T', ' ')} UTC`,
    ].join(' · ');
  return html`<form class="branch-form" method="get"><label for="against">Compare with</label>
<select id="against" name="against">${choices.map(choice => html`<option value="${choice.build.id}"${choice.build.id === base?.id ? html` selected` : ''}>${describe(choice)}</option>`)}</select>
<button class="button plain" type="submit">Compare</button></form>`;
}

const causeLabels: Record<Cause['kind'], string> = {
  dependencies: 'Dependencies',
  image: 'Image',
  command: 'Command',
  variables: 'Variables',
  limits: 'Limits',
  commits: 'Commits',
  chance: 'Chance or environment',
  tests: 'Tests',
  log: 'Log',
};

function renderCauses({ causes }: Diff): Html {
  const [first, ...others] = causes;
  if (!first)
    return html`<section class="panel cause" aria-labelledby="cause-title"><h2 id="cause-title">No difference found</h2>
<p>Assay recorded no difference between these builds.</p></section>`;
  return html`<section class="panel cause" aria-labelledby="cause-title"><h2 id="cause-title">Most likely cause</h2>
<p class="cause-first"><span class="tag">${causeLabels[first.kind]}</span> ${first.text}</p>
${others.length > 0 ? html`<p class="quiet">Also different, less likely:</p><ol class="cause-others" start="2">${others.map(({ kind, text }) => html`<li><span class="tag">${causeLabels[kind]}</span> ${text}</li>`)}</ol>` : ''}
</section>`;
}

/** What differs in the inputs and in the result, side by side. What is the same is only named. */
function renderInputs(record: Diff, base: Build, build: Build): Html {
  const { command, image, limits, variables, dependencies } = record;
  const rows: Row[] = [
    row('Result', stateBadge(base.buildState), stateBadge(build.buildState)),
    ...(record.exit_code.changed
      ? [row('Exit status', textOr(record.exit_code.before), textOr(record.exit_code.after))]
      : []),
    row('Duration', durationText(record.duration_ms.before), durationText(record.duration_ms.after)),
  ];
  const same: string[] = [];
  const add = (name: string, isChanged: boolean | undefined, changed: readonly Row[]) => {
    if (isChanged) rows.push(...changed);
    else if (isChanged === false) same.push(name);
  };
  add('command', command?.changed, [row('Command', code(command?.before), code(command?.after))]);
  add('image', image?.changed, [
    row('Image', imageText(image?.before, image?.before_id), imageText(image?.after, image?.after_id)),
  ]);
  const changedDependencies = dependencies?.filter(({ change }) => change !== 'same');
  add(
    'dependencies',
    changedDependencies && changedDependencies.length > 0,
    changedDependencies?.map(({ name, before, after, change }) =>
      row(
        html`Dependency ${name}`,
        change === 'added' ? 'not used' : artifactText(before),
        change === 'removed'
          ? 'not used'
          : change === 'launch'
            ? html`${artifactText(after)}, different launch command or environment`
            : artifactText(after),
      ),
    ) ?? [],
  );
  const variableRows = variables
    ? [
        ...variables.changed.map(name => row(variableName(name), 'set', 'a different value')),
        ...variables.added.map(name => row(variableName(name), 'not set', 'set')),
        ...variables.removed.map(name => row(variableName(name), 'set', 'not set')),
      ]
    : [];
  add('variables', variables ? variableRows.length > 0 : undefined, variableRows);
  const changedLimits = limits?.filter(({ changed }) => changed);
  add(
    'limits',
    changedLimits && changedLimits.length > 0,
    changedLimits?.map(({ name, before, after }) =>
      row(html`Setting <code>${name}</code>`, limitText(name, before), limitText(name, after)),
    ) ?? [],
  );
  return html`<section aria-labelledby="inputs-title"><h2 id="inputs-title">Before and after</h2>
${table({ caption: 'What differs between the two builds', columns: ['What', 'Before', 'After'], rows })}
${
  command === null
    ? html`<p class="quiet below-table">Command, image, dependencies, variables and limits were not recorded for one of these builds.</p>`
    : same.length > 0
      ? html`<p class="quiet below-table">The same in both: ${same.join(', ')}.</p>`
      : ''
}
</section>`;
}

const row = (name: Html | string, before: Html | string, after: Html | string): Row => ({
  cells: [name, before, after],
});
const textOr = (value: number | null) =>
  value === null ? html`<span class="quiet">none</span>` : `${value}`;
const durationText = (ms: number | null) => (ms === null ? textOr(null) : formatDuration(ms));
const code = (text = '') => html`<pre class="diff-code" tabindex="0">${text}</pre>`;
const variableName = (name: string) => html`Variable <code>${name}</code>`;
const artifactText = (hash: string | null) =>
  hash === null ? 'never compiled' : html`<code title="${hash}">${hash.slice(0, HASH_DIGITS)}</code>`;
const imageText = (name = '', id: string | null = null) =>
  html`<code>${name}</code>${id === null || id.startsWith(`assay/${name}`) ? '' : html` <code class="quiet" title="${id}">${id.replace(/^sha256:/, '').slice(0, HASH_DIGITS)}</code>`}`;

const SIZES = ['MEMORY', 'SHM', 'DISK'];
function limitText(name: string, value: string | number | null): Html | string {
  if (value === null) return textOr(null);
  if (SIZES.includes(name) && typeof value === 'number') return value === 0 ? 'no limit' : formatSize(value);
  return name === 'TIMEOUT' ? `${value} s` : `${value}`;
}

function renderCommits({ commits }: Diff): Html {
  const body = () => {
    if (commits === null)
      return html`<p class="quiet">The commits between the builds are not known: the server no longer has both.</p>`;
    const { list, total, missing, files, files_total: filesTotal } = commits;
    const omitted = total - list.length;
    const notListed = filesTotal - files.length;
    return html`${total === 0 && missing === 0 ? html`<p class="quiet">Both builds are of the same commit.</p>` : ''}
${missing > 0 ? html`<p class="flash note">${formatCount(missing)} ${missing === 1 ? 'commit' : 'commits'} of the other build ${missing === 1 ? 'is' : 'are'} not in this one.</p>` : ''}
${
  list.length > 0
    ? html`<ul class="diff-list">${list.map(
        commit =>
          html`<li><code>${commit.ref.slice(0, HASH_DIGITS)}</code> ${commit.subject} <span class="quiet">by ${commit.scm_author_name}, ${relativeTime(Date.parse(commit.scm_authored_date))}</span></li>`,
      )}</ul>`
    : ''
}
${omitted > 0 ? html`<p class="quiet">${formatCount(omitted)} older commits are not listed.</p>` : ''}
${
  files.length > 0
    ? html`<details class="diff-files"><summary>${formatCount(filesTotal)} ${filesTotal === 1 ? 'file' : 'files'} changed</summary>
<ul class="diff-paths">${files.map(({ path, change }) => html`<li><span class="tag">${change}</span> <code>${path}</code></li>`)}</ul>
${notListed > 0 ? html`<p class="quiet">${formatCount(notListed)} more are not listed.</p>` : ''}</details>`
    : ''
}`;
  };
  return html`<section aria-labelledby="commits-title"><h2 id="commits-title">Commits${commits && commits.total > 0 ? ` (${formatCount(commits.total)})` : ''}</h2>
${body()}</section>`;
}

function renderTests({ found }: BuildVisit, { tests }: Diff): Html | string {
  if (tests === null || tests.new_failures_total + tests.fixed_total === 0) return '';
  const list = (title: readonly [one: string, several: string], listed: typeof tests.fixed, total: number) =>
    total === 0
      ? ''
      : html`<h3>${total === 1 ? '1 test' : `${formatCount(total)} tests`} ${title[total === 1 ? 0 : 1]}</h3>
<ul class="diff-list">${listed.map(test => html`<li><a href="/ui/projects/${found.project.id}/tests/${test.id_str}">${test.name}</a> <span class="quiet">${test.classname}</span></li>`)}</ul>
${total > listed.length ? html`<p class="quiet">${formatCount(total - listed.length)} more are not listed.</p>` : ''}`;
  return html`<section aria-labelledby="tests-title"><h2 id="tests-title">Tests</h2>
${list(['fails that did not fail before', 'fail that did not fail before'], tests.new_failures, tests.new_failures_total)}
${list(['failed before and passes', 'failed before and pass'], tests.fixed, tests.fixed_total)}</section>`;
}

const cutNotes: Record<string, string> = {
  lines: 'Only the first of them are listed.',
  size: 'The log of the other build is too long to compare with all of it: some of these lines may be in it.',
  time: 'The logs are too long to compare completely.',
};

function renderLog({ found: { build } }: BuildVisit, { log }: Diff): Html | string {
  if (log === null || (log.lines.length === 0 && log.cut_because === null)) return '';
  const width = String(log.lines.at(-1)?.line ?? 1).length;
  return html`<section aria-labelledby="log-title"><h2 id="log-title">Log lines that are not in the other build</h2>
<p class="quiet">From the step that failed, ignoring times and numbers. Each line is listed once. ${cutNotes[log.cut_because ?? ''] ?? ''}</p>
<pre class="diff-log" tabindex="0" aria-label="Different log lines">${log.lines.map(({ line, text }) => html`${' '.repeat(width - String(line).length)}<a href="${buildHref(build)}#L${line}" title="Go to this line of the log">${line}</a>  ${text}\n`)}</pre></section>`;
}
