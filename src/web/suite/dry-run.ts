// The dry run: shows which suites would run for a commit with the current rules, and why.

import { html, raw } from 'hono/html';
import { parseId } from '../../domain/id.ts';
import { type CommitDetails, evaluatePartially, type Rule } from '../../domain/rules.ts';
import { type Commit, findCommit, findNewestRequest } from '../../store/builds.ts';
import type { Db } from '../../store/database/db.ts';
import { listAllRules, type Suite } from '../../store/suites.ts';
import { table } from '../frame/components.ts';
import { stateBadge } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';
import { commitChoices, type ProjectVisit } from '../project/frame.ts';
import { renderRuleResults } from './rule-results.ts';

export function renderDryRun(visit: ProjectVisit, suites: readonly Suite[]): Html {
  const { db } = visit.services;
  const { project } = visit.found;
  const offered = commitChoices(visit);
  if (offered.length === 0)
    return html`<p class="quiet">Start a build first. Once a commit is fetched, you can check here whether its rules are met, without running anything.</p>`;
  const commitId = parseId(visit.url.searchParams.get('commit') ?? '');
  const commit = commitId === undefined ? undefined : findCommit(db, project.id, commitId);
  return html`<form method="get" class="row" action="#dry-run">
<div class="field"><div class="label"><label for="dry-run-commit">Commit</label></div>
<select id="dry-run-commit" name="commit">${offered.map(
    ({ value, label }) =>
      html`<option value="${value}"${value === commit?.id.toString() ? raw(' selected') : ''}>${label}</option>`,
  )}</select></div>
${visit.url.searchParams.has('after') ? html`<input type="hidden" name="after" value="${visit.url.searchParams.get('after') ?? ''}">` : ''}<button class="button plain" type="submit">Test rules</button>
</form>
${commit ? renderResult(visit, suites, commit) : html`<p class="hint">Shows which suites would run for a commit with the current rules, and why. Nothing is run.</p>`}`;
}

function renderResult(visit: ProjectVisit, suites: readonly Suite[], commit: Commit): Html {
  const details = detailsOf(visit.services.db, commit);
  return table({
    caption: 'Dry run',
    columns: ['Suite', 'Result', 'Rules'],
    rows: suites.map(suite => {
      const { runs, rules } = evaluatePartially(
        listAllRules(visit.services.db, suite.id).map(
          ({ subject, operator, value }) => ({ subject, operator, value }) as Rule,
        ),
        details,
        commit.filesOmitted ?? 0,
      );
      const state = runs === undefined ? 'undecided' : runs ? 'would_run' : 'would_not_run';
      return { cells: [suite.name, stateBadge(state), renderRuleResults(rules)] };
    }),
  });
}

/** With the trigger of the newest request for the commit. */
function detailsOf(db: Db, commit: Commit): CommitDetails {
  const request = findNewestRequest(db, commit.id);
  return {
    ...commit,
    trigger: request?.trigger ?? '',
    triggerName: request?.triggerName ?? '',
    branches: JSON.parse(commit.branches) as string[],
    tags: JSON.parse(commit.tags) as string[],
    files: JSON.parse(commit.files) as string[],
  };
}
