// The words of the pages: texts that users read are plain English. To read all of them as one list, run
// node test/support/texts.ts
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { collectManual, collectTexts, literalsOf, type Text } from '../support/texts.ts';

/** Idioms that readers have to decode, in any text. */
const banned: readonly RegExp[] = [
  /take it along/i,
  /docker: answers/i,
  /\b(?:empty )?for no end\b/i,
  /^empty for\b/i,
  /nothing waits|nothing runs/i,
  /\btells? of\b/i,
  /wants no more/i,
  /\bonce more\b/i,
  /goes no further/i,
  /what came of it/i,
  /\bfits\b.*“|no \w+ fits\b/i,
  /\bsaw \S/i,
  /cannot be told/i,
  /^has$/i,
  /these hold|\brules? (?:do not )?holds?\b/i,
  /must return by itself/i,
  /\bthe usual\b|\busually one\b/i,
  /yours alone/i,
  /bring them together/i,
  /there is no such (?:thing|project|page|record|endpoint)/i,
  /has its way/i,
  /\banew\b|\bmend(?:s|ed)?\b|\bcondemn/i,
  /\bheld up\b|\bno room\b|\bwishes\b/i,
  /\b(?:first|last|next|a|the) looks?\b|\blooks? (?:now|every)\b/i,
  /\bit wants\b|\bhas to pay\b/i,
  /all the same\b(?=[.,])|\bhas nothing like\b|\blikeliest\b/i,
];

const pages = () => collectTexts();

const offending = (texts: readonly Text[]) =>
  texts.flatMap(({ file, line, text }) => {
    const pattern = banned.find(one => one.test(text));
    return pattern ? [`${file}:${line}: ${text} (${pattern})`] : [];
  });

test('every text of strings, templates and attributes is collected, and comments are not', () => {
  const source = [
    '// Nothing waits here.',
    "const label = 'It\\'s done.'; const pattern = /'[`]/;",
    'const body = html`<p title="A hint">Hello §{name ? `nested §{1}` : "none yet"}, <b>world</b></p>`; /* once more */',
  ]
    .join('\n')
    .replaceAll('§', '$');
  assert.deepEqual(
    literalsOf(source).map(({ text }) => text),
    ["It's done.", 'nested …', 'none yet', '<p title="A hint">Hello …, <b>world</b></p>'],
  );
  const texts = pages();
  for (const known of ['No deliveries yet', 'Search log', 'Sign in', 'This field is required.'])
    assert.ok(
      texts.some(({ text }) => text === known),
      known,
    );
  assert.ok(texts.length > 1500, `${texts.length}`);
});

test('no text of a page, an error or the manual has an idiom that readers must decode', () => {
  assert.deepEqual(offending(pages()), []);
  assert.deepEqual(offending(collectManual()), []);
  assert.equal(offending([{ file: 'x', line: 1, text: 'Nothing waits and nothing runs' }]).length, 1);
});
