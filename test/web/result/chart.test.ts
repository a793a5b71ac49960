// The charts: what they draw for known values, and what they say to readers who do not see them.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { barChart, type ChartPoint, formatRate, rateChart } from '../../../src/web/result/chart.ts';

const point = (value: number | undefined, state = 'passed'): ChartPoint => ({
  href: '/ui/builds/1',
  label: `${value}`,
  state,
  value,
});
const draw = async (chart: typeof barChart, points: ChartPoint[], format = (value: number) => `${value} s`) =>
  String(
    await chart({ id: 'c', title: 'Duration', summary: 'Two builds.', points, format, ends: ['old', 'new'] }),
  );
const pathOf = (text: string, name: string) =>
  new RegExp(`<path class="${name}" d="([^"]*)"`).exec(text)?.[1];

describe('a bar chart', () => {
  it('draws each value in proportion to the largest, in the tone of its build', async () => {
    const text = await draw(barChart, [point(5), point(10, 'failed'), point(undefined, 'errored')]);
    assert.match(text, /<path class="good" d="M1 50h6v50h-6z"/);
    assert.match(text, /<path class="bad" d="M9 0h6v100h-6z"/);
    assert.equal(pathOf(text, 'warn'), '', 'no bar for an unknown value');
    assert.match(text, /<span>10 s<\/span><span>0<\/span>/, 'the axis');
  });

  it('shows results by shape too: a line, a block, a split block', async () => {
    const text = await draw(barChart, [point(1), point(1, 'failed'), point(1, 'errored')]);
    const strip = text.slice(text.lastIndexOf('<path class="good"', text.indexOf('</g>')));
    assert.match(strip, /class="good" d="M1 115h6v3h-6z"/);
    assert.match(strip, /class="bad" d="M9 104h6v14h-6z"/);
    assert.match(strip, /class="warn" d="M17 104h6v5h-6zM17 113h6v5h-6z"/);
    for (const label of ['Passed', 'Failed', 'Errored']) assert.ok(text.includes(`</svg> ${label}</li>`));
  });

  it('has a title and a description, and a link to each build that the keyboard skips', async () => {
    const text = await draw(barChart, [{ ...point(1), href: '/ui/b?x=1&y=2', label: '<b>' }]);
    assert.match(text, /role="img" aria-labelledby="c-title c-desc"/);
    assert.match(text, /<title id="c-title">Duration<\/title><desc id="c-desc">Two builds\.<\/desc>/);
    assert.match(text, /<a href="\/ui\/b\?x=1&amp;y=2" tabindex="-1"><title>&lt;b&gt;<\/title>/);
    assert.doesNotMatch(text, /style=|<script/);
  });

  it('is empty without builds, and flat when all values are zero', async () => {
    assert.doesNotMatch(await draw(barChart, []), /NaN|Infinity|<a /);
    assert.match(await draw(barChart, [point(0)]), /class="good" d="M1 98h6v2h-6z"/);
  });
});

describe('a chart of pass rates', () => {
  it('steps from rate to rate, and interrupts the line where there is none', async () => {
    const text = await draw(rateChart, [point(1), point(0.5), point(undefined), point(0.75)], formatRate);
    assert.equal(pathOf(text, 'line'), 'M0 0H8V100H16M24 50H32');
    assert.match(text, /<span>100 %<\/span><span>50 %<\/span>/);
  });

  it('begins its axis below the lowest rate', async () => {
    for (const [lowest, floor] of [
      [1, '99.9 %'],
      [0.9991, '99.9 %'],
      [0.98, '95 %'],
      [0.3, '0 %'],
    ] as const)
      assert.ok(
        (await draw(rateChart, [point(1), point(lowest)], formatRate)).includes(`<span>${floor}</span>`),
      );
  });
});

describe('a pass rate as text', () => {
  for (const [rate, shown] of [
    [1, '100 %'],
    [0.99999, '99.99 %'],
    [0.5, '50 %'],
    [0.3333, '33.3 %'],
    [0, '0 %'],
  ] as const)
    it(`shows ${rate} as ${shown}`, () => assert.equal(formatRate(rate), shown));
});
