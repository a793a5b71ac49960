// The line on a failed build's page that names the likeliest cause of the failure.

import { html } from 'hono/html';
import type { Html } from '../frame/visit.ts';
import { type BuildVisit, buildHref, hasFailed } from './build-frame.ts';

/** Empty if the build has not failed, or nothing is known to have changed. */
export async function renderLikelyCause({ services, found: { build } }: BuildVisit): Promise<Html | string> {
  if (!hasFailed(build)) return '';
  const compared = await services.compareBuilds(build, { isBrief: true });
  const cause = compared?.causes[0];
  if (!cause) return '';
  return html`<p class="finding"><strong>Most likely cause:</strong> ${cause.text} <a href="${buildHref(build, 'changes')}">What changed</a></p>`;
}
