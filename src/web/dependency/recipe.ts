// "Start from a recipe" on the page of a new dependency: the name of an archive, or a choice, selects a recipe of the
// cookbook, and the form is filled in from it. A plain GET form; recipe.js sends it as soon as an archive is chosen.

import { html } from 'hono/html';
import {
  cookbook,
  findRecipe,
  guessDirectory,
  matchRecipe,
  parseArchiveName,
  type Recipe,
} from '../../domain/cookbook.ts';
import {
  isDependencyNameTaken,
  listOwnDependencies,
  listSharedDependencies,
} from '../../store/dependencies.ts';
import { formTo, selectField, submitButton } from '../frame/form.ts';
import type { Html, Visit } from '../frame/visit.ts';

/** The choice that is no recipe. */
const BY_ARCHIVE = 'archive';

/** The values of the form of a new dependency, and the panel that chooses where they come from. */
export function startFromRecipe(
  visit: Visit,
  page: string,
): { panel: Html; values: Record<string, string | readonly string[]> } {
  const query = visit.url.searchParams;
  // A browser sends the name of a chosen file, never its content, with a GET form.
  const archive = (query.get('archive') ?? '').trim().slice(0, 255);
  const recipe = matchRecipe(archive) ?? findRecipe(query.get('recipe') ?? '');
  const values = recipe ? valuesOf(visit, recipe, archive) : guessValues(visit, archive);
  const form = formTo(visit, `${page}-from-recipe`, { recipe: recipe?.id ?? BY_ARCHIVE });
  return {
    values,
    panel: html`<section class="panel form recipe">
<h2>Start from a recipe</h2>
<form method="get" action="${page}" data-recipe>
<div class="field">
<div class="label"><label for="recipe-archive">Archive of the source code</label></div>
<p class="hint" id="recipe-archive-hint">Its name selects a recipe, and the form below is filled in. It is uploaded later.</p>
<input id="recipe-archive" name="archive" type="file" aria-describedby="recipe-archive-hint">
</div>
<div class="row">
${selectField(form, {
  name: 'recipe',
  label: 'Or choose a recipe',
  required: true,
  choices: [
    { value: BY_ARCHIVE, label: 'By the name of the archive' },
    ...cookbook.map(({ id, title }) => ({ value: id, label: title })).toSorted(byLabel),
  ],
})}
${submitButton('Fill in the form', 'plain')}
</div>
</form>
${recipe ? describe(recipe, archive, relatedTo(visit, recipe)) : archive === '' ? '' : describeUnknown(archive)}
</section>`,
  };
}

const byLabel = (a: { label: string }, b: { label: string }) => a.label.localeCompare(b.label, 'en');

function valuesOf(visit: Visit, recipe: Recipe, archive: string) {
  return {
    name: freeName(visit, recipe.title, archive),
    description: recipe.description,
    command: recipe.command,
    prefix: recipe.prefix,
    source: guessDirectory(archive, recipe) || exampleOf(recipe).directory,
    launch_command: recipe.launchCommand,
    environment: recipe.environment,
    library_path: String(recipe.libraryPath),
    'related_dependencies[]': relatedTo(visit, recipe).map(({ id }) => id.toString()),
  };
}

/** What most programs in C need. */
function guessValues(visit: Visit, archive: string): Record<string, string> {
  const parsed = parseArchiveName(archive);
  if (!parsed) return {};
  const prefix = `/opt/${parsed.name.toLowerCase().replaceAll(/[^a-z0-9.-]/g, '-')}`;
  return {
    name: freeName(visit, parsed.name, archive),
    command: `./configure --prefix=${prefix} && make && make install`,
    prefix,
    source: guessDirectory(archive),
  };
}

/** With the version if the account has a dependency of this name. */
function freeName({ services: { db }, account }: Visit, name: string, archive: string): string {
  const version = parseArchiveName(archive)?.version;
  return version !== undefined && isDependencyNameTaken(db, account.id, name) ? `${name} ${version}` : name;
}

const OFFERED = { limit: 500, before: undefined };

/** The dependencies that were created from the recipes it needs: those with the prefix of the recipe. */
function relatedTo({ services: { db }, account }: Visit, recipe: Recipe) {
  const usable = [
    ...listOwnDependencies(db, account.id, OFFERED),
    ...listSharedDependencies(db, account.id, OFFERED),
  ];
  return recipe.libraries.flatMap(
    library => usable.find(({ prefix }) => prefix === findRecipe(library.recipe)?.prefix) ?? [],
  );
}

function exampleOf({ archives }: Recipe) {
  const [[file, directory]] = archives as [Recipe['archives'][number]];
  return { file, directory };
}

function describe(recipe: Recipe, archive: string, related: readonly { prefix: string }[]): Html {
  const missing = recipe.libraries.filter(
    library => !related.some(({ prefix }) => prefix === findRecipe(library.recipe)?.prefix),
  );
  return html`<div class="flash note">
<p>The form is filled in from the recipe ${recipe.title}${archive === '' ? '' : html` for <code>${archive}</code>`}. <a href="/ui/manual/cookbook#${recipe.id}">About this recipe</a></p>
${archive === '' ? html`<p>The source directory is that of <code>${exampleOf(recipe).file}</code>. Change it if your archive has another one.</p>` : ''}
${missing.map(
  library =>
    html`<p>The compile needs ${findRecipe(library.recipe)?.title}: <a href="?recipe=${library.recipe}">create it as a dependency first</a>, or use an image with the package <code>${library.package}</code>.</p>`,
)}
${
  recipe.packages.length === 0
    ? ''
    : html`<p>Packages that the image may need: ${recipe.packages.map((name, at) => html`${at > 0 ? ', ' : ''}<code>${name}</code>`)}.</p>`
}
</div>`;
}

function describeUnknown(archive: string): Html {
  return html`<p class="flash note">There is no recipe for <code>${archive}</code>. ${
    parseArchiveName(archive)
      ? 'The form suggests settings that suit most C programs. Check the command and the source directory.'
      : 'Choose one, or fill in the form yourself.'
  }</p>`;
}
