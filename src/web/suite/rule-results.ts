// Shows rules and their results for a commit, for past decisions and for dry runs.

import { html } from 'hono/html';
import type { Operator, Rule, RuleResult, Subject } from '../../domain/rules.ts';
import { stateMark } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';

export const subjectLabels: Record<Subject, string> = {
  'commit.message': 'message',
  'commit.branches': 'branches',
  'commit.tags': 'tags',
  'commit.files': 'changed files',
  'commit.ref': 'hash',
  'commit.author_name': 'author’s name',
  'commit.author_email': 'author’s email',
  'commit.committer_name': 'committer’s name',
  'commit.committer_email': 'committer’s email',
  'request.trigger': 'trigger',
  'request.trigger_name': 'trigger’s name',
};

export const operatorLabels: Record<Operator, string> = {
  contains: 'contains',
  does_not_contain: 'does not contain',
  equals: 'equals',
  does_not_equal: 'does not equal',
  starts_with: 'starts with',
  ends_with: 'ends with',
  matches: 'matches',
  does_not_match: 'does not match',
};

export const renderRule = ({ subject, operator, value }: Rule): Html =>
  html`<code>${subject}</code> ${operatorLabels[operator] ?? operator} <code class="value">${value}</code>`;

const MAX_VALUE_LENGTH = 160;

/** Why a suite runs for a commit or not: each rule, whether it holds, and the value it was evaluated against. */
export function renderRuleResults(rules: readonly (RuleResult & { isOpen?: boolean })[]): Html {
  if (rules.length === 0) return html`<span class="quiet">No rules, so the suite always runs.</span>`;
  return html`<ul class="rules">${rules.map(
    rule =>
      html`<li>${stateMark(rule.isOpen ? 'undecided' : rule.holds ? 'holds' : 'does_not_hold')}<div>${renderRule(rule)}<div class="second">${rule.isOpen ? UNDECIDED_TEXT : ''}${renderValue(rule.saw)}</div></div></li>`,
  )}</ul>`;
}

const UNDECIDED_TEXT =
  'The commit changes more files than are stored, and the stored ones do not decide. A build evaluates all of them. ';

function renderValue(saw: string | string[]): Html {
  const text = Array.isArray(saw) ? saw.join(', ') : saw;
  if (text === '') return html`Value: none`;
  if (text.length <= MAX_VALUE_LENGTH) return html`Value: ${text}`;
  return html`<details><summary>Value: ${text.slice(0, MAX_VALUE_LENGTH)}…</summary>${text}</details>`;
}
