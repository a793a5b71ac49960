// The manual: parses its topics on first use, and searches them. views.ts shows them in the browser; `assay help TOPIC`
// prints them.

import { Marked, type MarkedToken, type Token, type Tokens } from 'marked';
import { flagOf, settings } from '../../config.ts';
import { cookbook, findRecipe, type Recipe } from '../../domain/cookbook.ts';
import { errorTable } from '../../domain/refusal.ts';
import { postReceiveScript } from '../../domain/trigger/post-receive.ts';
import { readTopic, topicNames } from './topics.ts';

/** A heading and the text up to the next one. The first section has the title of the topic. */
type Section = { id: string; title: string; depth: number; lines: string[] };

export type Topic = {
  name: string;
  title: string;
  /** The first paragraph, without markup. */
  summary: string;
  tokens: readonly Token[];
  sections: readonly Section[];
};

const loaded = new Map<string, Topic>();

export function findTopic(name: string): Topic | undefined {
  if (!topicNames.includes(name)) return undefined;
  const topic = loaded.get(name) ?? parseTopic(name, readTopic(name));
  loaded.set(name, topic);
  return topic;
}

export const listTopics = (): Topic[] => topicNames.map(name => findTopic(name) as Topic);

const SETTINGS_MARK = '[[settings]]';
const ERRORS_MARK = '[[errors]]';
const RECIPES_MARK = '[[recipes]]';
const POST_RECEIVE_MARK = '[[post-receive]]\n';

export function parseTopic(name: string, markdown: string): Topic {
  const tokens = new Marked().lexer(
    markdown
      .replace(SETTINGS_MARK, settingsTable)
      .replace(ERRORS_MARK, errorsTable)
      .replace(RECIPES_MARK, () => cookbook.map(recipeSection).join('\n'))
      .replace(POST_RECEIVE_MARK, () => postReceiveScript('https://localhost:8443/hooks/TRIGGER_ID')),
  );
  const sections: Section[] = [];
  const taken = new Set<string>();
  for (const token of tokens as MarkedToken[])
    if (token.type === 'heading') {
      const title = plainText(token.tokens);
      sections.push({ id: uniqueId(title, taken), title, depth: token.depth, lines: [] });
    } else sections.at(-1)?.lines.push(...plainLines(token));
  const [first] = sections;
  if (first?.depth !== 1) throw new Error(`the topic ${name} does not begin with its title`);
  return { name, title: first.title, summary: first.lines[0] ?? '', tokens, sections };
}

function uniqueId(title: string, taken: Set<string>): string {
  const id = title
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '');
  if (taken.has(id)) throw new Error(`the heading "${title}" occurs twice`);
  taken.add(id);
  return id;
}

function settingsTable(): string {
  const cell = (text: string) => text.replaceAll('|', '\\|');
  const code = (text: string) => (text === '' ? '' : `\`${cell(text)}\``);
  return [
    '| Setting | Default | Meaning |',
    '|---|---|---|',
    ...settings.map(
      ({ name, defaultValue, form, meaning }) =>
        `| \`ASSAY_${name}\`, \`${flagOf(name)}\` ${cell(form)} | ${code(defaultValue)} | ${cell(meaning)} |`,
    ),
  ].join('\n');
}

const errorsTable = () =>
  [
    '| Code | Status | Meaning |',
    '|---|---|---|',
    ...Object.entries(errorTable).map(
      ([code, [status, meaning]]) => `| \`${code}\` | ${status} | ${meaning} |`,
    ),
    '| (none) | 500 | A defect of the server. Its log has the request ID. |',
  ].join('\n');

function recipeSection(recipe: Recipe): string {
  const code = (texts: readonly string[]) => texts.map(text => `\`${text}\``).join(', ');
  const block = (title: string, text: string) =>
    text === '' ? [] : [`${title}:`, `\`\`\`text\n${text}\n\`\`\``];
  const [[, directory]] = recipe.archives as [Recipe['archives'][number]];
  const needs = [
    ...recipe.libraries.map(one => {
      const { id, title } = findRecipe(one.recipe) as Recipe;
      return `[${title}](#${id}) as a related dependency or the package \`${one.package}\``;
    }),
    ...(recipe.packages.length > 0
      ? [`${recipe.packages.length === 1 ? 'the package' : 'the packages'} ${code(recipe.packages)}`]
      : []),
  ];
  return [
    `## ${recipe.title}`,
    `${recipe.description}. [Fill in the form](/ui/dependencies/new?recipe=${recipe.id})`,
    [
      `- Archives: ${code(recipe.archives.map(([file]) => file))}`,
      `- Source directory: ${code([directory])}`,
      `- Prefix: ${code([recipe.prefix])}`,
      ...(needs.length > 0 ? [`- May need ${needs.join('; ')}`] : []),
      ...(recipe.libraryPath ? [] : ['- Not on `LD_LIBRARY_PATH` (`library_path=false`)']),
    ].join('\n'),
    ...block('Command', recipe.command),
    ...block('Launch command', recipe.launchCommand),
    ...block('Environment', recipe.environment),
    ...block('In a suite', recipe.tryCommand),
    ...(recipe.notes === '' ? [] : [recipe.notes]),
    '',
  ].join('\n\n');
}

/** Text without its markup. */
export function plainText(tokens: readonly Token[]): string {
  return (tokens as MarkedToken[])
    .map(token => {
      if (token.type === 'br') return ' ';
      if ('tokens' in token && token.tokens) return plainText(token.tokens);
      return 'text' in token ? token.text : '';
    })
    .join('')
    .replaceAll(/\s+/g, ' ');
}

function plainLines(token: MarkedToken): string[] {
  switch (token.type) {
    case 'code':
      return token.text.split('\n');
    case 'list':
      return token.items.flatMap(item => (item.tokens as MarkedToken[]).flatMap(plainLines));
    case 'table':
      return token.rows.map(row => row.map((cell: Tokens.TableCell) => plainText(cell.tokens)).join(' · '));
    case 'blockquote':
      return (token.tokens as MarkedToken[]).flatMap(plainLines);
    case 'paragraph':
    case 'text':
      return [token.tokens ? plainText(token.tokens) : token.text];
    default:
      return [];
  }
}

export type SearchResult = { topic: Topic; section: Section; line: string };

const MAX_RESULTS = 50;
const LINE_CHARACTERS = 200;

/** The sections that contain every word of the query; those with a word in the title come first. */
export function searchManual(query: string): SearchResult[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const inTitle: SearchResult[] = [];
  const inText: SearchResult[] = [];
  for (const topic of listTopics())
    for (const section of topic.sections) {
      const text = [section.title, ...section.lines].join('\n').toLowerCase();
      if (!words.every(word => text.includes(word))) continue;
      const isTitle = words.some(word => section.title.toLowerCase().includes(word));
      (isTitle ? inTitle : inText).push({ topic, section, line: contextOf(section, words) });
    }
  return [...inTitle, ...inText].slice(0, MAX_RESULTS);
}

/** The line with the most words of the query, cut around the first one. */
function contextOf({ lines }: Section, words: readonly string[]): string {
  const count = (line: string) => words.filter(word => line.toLowerCase().includes(word)).length;
  const best = lines.reduce((found, line) => (count(line) > count(found) ? line : found), lines[0] ?? '');
  const positions = words.map(word => best.toLowerCase().indexOf(word)).filter(at => at >= 0);
  const start = Math.max(0, Math.min(...positions, best.length) - LINE_CHARACTERS / 2);
  const cut = best.slice(start, start + LINE_CHARACTERS);
  return `${start > 0 ? '… ' : ''}${cut}${start + cut.length < best.length ? ' …' : ''}`;
}

/** The target of a link in the manual: a topic (`webhooks.md#retries`) or another page (`/ui/api`). */
type Target = { topic?: string; id?: string; path?: string };

export function targetOf(href: string): Target {
  const [, topic, id] = /^(?:([a-z-]+)\.md)?(?:#([a-z0-9-]+))?$/.exec(href) ?? [];
  return topic || id ? { ...(topic && { topic }), ...(id && { id }) } : { path: href };
}
