// Charts of builds as inline SVG, oldest build first: bars of durations, a line of pass rates, and a strip of results. They
// are stretched to the width of the page, so that all texts are outside of the picture. Each column links to its build. The
// page adds a table with the same values for readers who do not see the picture.

import { html, raw } from 'hono/html';
import { stateLabel, toneOf } from '../frame/state.ts';
import type { Html } from '../frame/visit.ts';

export type ChartPoint = {
  href: string;
  /** Shown on hover. */
  label: string;
  state: string;
  /** Undefined if it is not known: the column is empty. */
  value: number | undefined;
};

const COLUMN = 8;
const GAP = 2;
/** A few builds do not fill the width. */
const MIN_COLUMNS = 30;
const HEIGHT = 100;
const STRIP = 14;
const PADDING = 4;
const MIN_BAR = 2;

/** What the axis of a pass rate may begin with: most rates are close to 100 %. */
const RATE_FLOORS = [0.999, 0.99, 0.95, 0.9, 0.8, 0.5, 0];

type Chart = {
  /** Unique on the page. */
  id: string;
  title: string;
  /** What the picture shows, in one or two sentences. */
  summary: string;
  points: readonly ChartPoint[];
  format: (value: number) => string;
  /** Below the first and the last column. */
  ends?: readonly [first: Html | string, last: Html | string];
};

/** Bars from zero, with the result of each build below them. */
export function barChart(chart: Chart): Html {
  const { points } = chart;
  const top = Math.max(0, ...points.map(({ value = 0 }) => value));
  const bars = pathsByTone(points, ({ value }, x) => {
    if (value === undefined) return '';
    const height = Math.max(MIN_BAR, top === 0 ? 0 : (value / top) * HEIGHT);
    return rectangle(x, HEIGHT - height, height);
  });
  return renderChart(chart, {
    axis: [chart.format(top), '0'],
    height: HEIGHT + PADDING + STRIP,
    drawing: html`<path class="grid" d="M0 0H${widthOf(points)}M0 ${HEIGHT}H${widthOf(points)}"/>${bars}${resultStrip(points, HEIGHT + PADDING)}`,
    states: points.map(({ state }) => state),
  });
}

/** A stepped line of rates between 0 and 1. Columns without a value interrupt it. */
export function rateChart(chart: Chart): Html {
  const { points } = chart;
  const width = widthOf(points);
  const floor = floorOf(points);
  return renderChart(chart, {
    axis: [chart.format(1), chart.format(floor)],
    height: HEIGHT,
    drawing: html`<path class="grid" d="M0 0H${width}M0 ${HEIGHT}H${width}"/><path class="line" d="${ratePath(points, floor, HEIGHT)}"/>`,
    states: [],
  });
}

/** 99.95 % is not 100 %: a rate is rounded down, with as many digits as show the difference. */
export function formatRate(rate: number): string {
  const percent = rate * 100;
  if (Number.isInteger(percent)) return `${percent} %`;
  const digits = percent > 99 ? 2 : 1;
  const factor = 10 ** digits;
  return `${Math.floor(percent * factor) / factor} %`;
}

function renderChart(
  { id, title, summary, points, ends }: Chart,
  drawn: { axis: [top: string, bottom: string]; height: number; drawing: Html; states: readonly string[] },
): Html {
  const width = widthOf(points);
  return html`<figure class="chart" aria-labelledby="${id}-caption">
<figcaption id="${id}-caption"><strong>${title}</strong> <span class="quiet">${summary}</span></figcaption>
<div class="chart-area">
<div class="chart-axis" aria-hidden="true"><span>${drawn.axis[0]}</span><span>${drawn.axis[1]}</span></div>
<svg class="${drawn.states.length > 0 ? 'with-strip' : ''}" viewBox="0 0 ${width} ${drawn.height}" preserveAspectRatio="none">
<g role="img" aria-labelledby="${id}-title ${id}-desc"><title id="${id}-title">${title}</title><desc id="${id}-desc">${summary}</desc>${drawn.drawing}</g>
<g aria-hidden="true">${points.map(
    ({ href, label }, at) =>
      html`<a href="${href}" tabindex="-1"><title>${label}</title><rect class="hit" x="${at * COLUMN}" y="0" width="${COLUMN}" height="${drawn.height}"/></a>`,
  )}</g>
</svg>
${ends && points.length >= MIN_COLUMNS ? html`<div class="chart-ends"><span>${ends[0]}</span><span>${ends[1]}</span></div>` : ''}
</div>
${renderLegend(drawn.states)}
</figure>`;
}

const widthOf = (points: readonly unknown[]) => Math.max(points.length, MIN_COLUMNS) * COLUMN;

/** Passed is a thin line, failed a block, errored a split block: results differ by shape, not only by colour. */
function resultStrip(points: readonly Pick<ChartPoint, 'state'>[], y: number): Html[] {
  return pathsByTone(points, ({ state }, x) => {
    switch (toneOf(state)) {
      case 'good':
        return rectangle(x, y + STRIP - 3, 3);
      case 'bad':
        return rectangle(x, y, STRIP);
      case 'warn':
        return rectangle(x, y, STRIP / 2 - 2) + rectangle(x, y + STRIP / 2 + 2, STRIP / 2 - 2);
      default:
        return rectangle(x, y + STRIP / 2, 2);
    }
  });
}

function renderLegend(states: readonly string[]): Html | string {
  const shown = [...new Set(states)];
  if (shown.length === 0) return '';
  return html`<ul class="chart-legend" aria-hidden="true">${shown.map(
    state =>
      html`<li><svg class="chart-key" viewBox="0 0 ${COLUMN} ${STRIP}" width="8" height="14">${resultStrip([{ state }], 0)}</svg> ${stateLabel(state)}</li>`,
  )}</ul>`;
}

/** One path for all columns of a tone: a hundred elements would be ten times as large. */
function pathsByTone<Point extends { state: string }>(
  points: readonly Point[],
  draw: (point: Point, x: number) => string,
): Html[] {
  const paths = new Map<string, string>();
  for (const [at, point] of points.entries()) {
    const tone = toneOf(point.state);
    paths.set(tone, (paths.get(tone) ?? '') + draw(point, at * COLUMN + GAP / 2));
  }
  return [...paths].map(([tone, path]) => html`<path class="${tone}" d="${raw(path)}"/>`);
}

const round = (value: number) => Math.round(value * 10) / 10;
const rectangle = (x: number, y: number, height: number) =>
  `M${round(x)} ${round(y)}h${COLUMN - GAP}v${round(height)}h${GAP - COLUMN}z`;

type Rate = { value: number | undefined };

function floorOf(points: readonly Rate[]): number {
  const lowest = Math.min(1, ...points.flatMap(({ value }) => value ?? []));
  return RATE_FLOORS.find(floor => floor <= lowest) ?? 0;
}

function ratePath(points: readonly Rate[], floor: number, height: number): string {
  let path = '';
  let isDrawing = false;
  for (const [at, { value }] of points.entries()) {
    if (value !== undefined) {
      const y = round(height - ((value - floor) / (1 - floor)) * height);
      path += isDrawing ? `V${y}` : `M${at * COLUMN} ${y}`;
      path += `H${(at + 1) * COLUMN}`;
    }
    isDrawing = value !== undefined;
  }
  return path;
}
