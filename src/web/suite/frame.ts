// The layout that the pages of a suite share: its name, and the tabs History, Tests and Settings.

import { html } from 'hono/html';
import { navItem } from '../frame/components.ts';
import type { Html, View } from '../frame/visit.ts';
import { projectView, type SuiteVisit, suitePath } from '../project/frame.ts';

type Tab = 'history' | 'tests' | 'settings';

const tabs: [tab: Tab, path: string, label: string][] = [
  ['history', '', 'History'],
  ['tests', '/tests', 'Tests'],
  ['settings', '/settings', 'Settings'],
];

export function suiteView(
  visit: SuiteVisit,
  options: { tab: Tab; body: Html; actions?: Html; live?: string },
): View {
  const { suite } = visit.found;
  const { tab, body, live } = options;
  const [, , label] = tabs.find(([one]) => one === tab) ?? [tab, '', tab];
  return projectView(visit, {
    tab: 'suites',
    styles: ['results.css'],
    ...(live !== undefined && { live }),
    subpage: {
      heading: suite.name,
      title: `${label} · ${suite.name}`,
      ...(suite.description !== '' && { subtitle: html`<span>${suite.description}</span>` }),
      ...(options.actions && { actions: options.actions }),
    },
    body: html`<nav class="tabs" aria-label="Suite"><ul>${tabs.map(([one, path, name]) =>
      navItem(suitePath(visit, path), name, one === tab),
    )}</ul></nav>
${body}`,
  });
}
