// Forms and their fields, with labels, hints and errors. A refused form is shown again with what the user typed.

import { html, raw } from 'hono/html';
import { errorMessage } from '../../contract/error-text.ts';
import type { ErrorCode } from '../../domain/refusal.ts';
import type { Guest, Html } from './visit.ts';

/** A form on a page: where it is sent, the values of its fields, and their errors. */
export type Form = {
  action: string;
  /** Empty without a session. */
  csrf: string;
  /** Makes the field ids of several forms on one page distinct. */
  id: string;
  value(name: string): string;
  values(list: string): readonly string[];
  errors(name: string): readonly ErrorCode[];
  /** A refused form focuses the first field with an error instead of its first field. */
  isRefused: boolean;
  /** Messages for errors of fields that the form does not show. */
  otherErrors(): readonly string[];
};

/** A form sent to `action`. `initial` holds the values that its fields start with. */
export function formTo(
  guest: Pick<Guest, 'session' | 'refused'>,
  action: string,
  initial: Record<string, string | readonly string[]> = {},
): Form {
  const refused = guest.refused?.action === action ? guest.refused : undefined;
  const shownFields = new Set<string>();
  const text = (value: unknown) =>
    typeof value === 'string' ? value : typeof value === 'symbol' ? '' : undefined;
  return {
    action,
    csrf: guest.session?.csrf ?? '',
    id: action.replace(/[^A-Za-z0-9]+/g, '-').replace(/^-/, ''),
    value: name =>
      text(refused?.sent.get(name)) ??
      (refused ? '' : typeof initial[name] === 'string' ? initial[name] : ''),
    values: list => {
      const sent = refused?.sent.get(list);
      if (Array.isArray(sent)) return sent.map(one => text(one) ?? '');
      return !refused && Array.isArray(initial[list]) ? (initial[list] as readonly string[]) : [];
    },
    errors: name => {
      shownFields.add(name);
      return refused?.errors[name] ?? [];
    },
    isRefused: refused !== undefined && Object.keys(refused.errors).length > 0,
    otherErrors: () =>
      Object.entries(refused?.errors ?? {})
        .filter(([name]) => !shownFields.has(name))
        .flatMap(([name, codes]) => codes.map(code => errorMessage(name, code))),
  };
}

/**
 * What a dialog asks before the form is sent, and the labels of its two answers: `no` changes nothing. Without scripts
 * the form is sent at once.
 */
export type Confirmation = { confirm: string; yes: string; no: string } | { confirm?: undefined };

/** The form element. Errors of fields that it does not show appear at its top. */
export function renderForm(
  form: Form,
  options: { fields: Html | Html[]; submit: Html | Html[]; className?: string } & Confirmation,
): Html {
  const problems = form.otherErrors();
  const question =
    options.confirm === undefined
      ? ''
      : html` data-confirm="${options.confirm}" data-yes="${options.yes}" data-no="${options.no}"`;
  return html`<form method="post" action="${form.action}" class="${options.className ?? 'form'}"${question}>
${form.csrf ? html`<input type="hidden" name="csrf" value="${form.csrf}">` : ''}
${problems.length > 0 ? html`<div class="flash failed" role="alert">${problems.join(' ')}</div>` : ''}
${options.fields}
<div class="buttons">${options.submit}</div>
</form>`;
}

type FieldOptions = {
  name: string;
  label: string;
  hint?: Html | string;
  required?: boolean;
  autofocus?: boolean;
};

const fieldId = (form: Form, { name }: { name: string }) =>
  `${form.id}-${name.replace(/[^A-Za-z0-9]+/g, '-')}`;

function renderField(
  form: Form,
  options: FieldOptions,
  control: (id: string, attributes: Html) => Html,
): Html {
  const id = fieldId(form, options);
  const errors = form.errors(options.name);
  const described = [options.hint ? `${id}-hint` : '', errors.length > 0 ? `${id}-error` : '']
    .filter(Boolean)
    .join(' ');
  const attributes = html`${described ? html` aria-describedby="${described}"` : ''}${
    errors.length > 0 ? raw(' aria-invalid="true"') : ''
  }${options.required ? raw(' required') : ''}${(options.autofocus && !form.isRefused) || errors.length > 0 ? raw(' autofocus') : ''}`;
  return html`<div class="field${errors.length > 0 ? ' wrong' : ''}">
<div class="label"><label for="${id}">${options.label}</label>${options.required ? '' : html` <span class="optional">optional</span>`}</div>
${options.hint ? html`<p class="hint" id="${id}-hint">${options.hint}</p>` : ''}
${control(id, attributes)}
${errors.length > 0 ? html`<p class="error" id="${id}-error">${errors.map(code => errorMessage(options.name, code)).join(' ')}</p>` : ''}
</div>`;
}

export function textField(
  form: Form,
  options: FieldOptions & {
    type?: 'email' | 'password';
    autocomplete?: string;
    placeholder?: string;
    /** Names, addresses and code: monospace, without spell check or automatic capitals. */
    code?: boolean;
    minLength?: number;
    /** Values that the browser suggests while the user types. */
    suggestions?: readonly string[];
  },
): Html {
  const type = options.type ?? 'text';
  const { suggestions } = options;
  return renderField(
    form,
    options,
    (id, attributes) =>
      html`<input id="${id}" name="${options.name}" type="${type}" value="${type === 'password' ? '' : form.value(options.name)}" autocomplete="${options.autocomplete ?? 'off'}"${options.placeholder ? html` placeholder="${options.placeholder}"` : ''}${options.minLength ? html` minlength="${options.minLength}"` : ''}${options.code ? raw(' class="code" spellcheck="false" autocapitalize="off"') : ''}${suggestions ? html` list="${id}-list"` : ''}${attributes}>${suggestions ? html`<datalist id="${id}-list">${suggestions.map(value => html`<option value="${value}">`)}</datalist>` : ''}`,
  );
}

const MAX_ROWS = 20;
/** About as many characters fit into a line. */
const LINE_CHARACTERS = 70;

/** About as high as its text, and at least `rows`. */
export function textArea(form: Form, options: FieldOptions & { rows?: number; code?: boolean }): Html {
  const heights = form
    .value(options.name)
    .split('\n')
    .map(line => Math.max(1, Math.ceil(line.length / LINE_CHARACTERS)));
  const height = heights.reduce((sum, one) => sum + one, 0);
  const rows = Math.max(options.rows ?? 3, Math.min(height, MAX_ROWS));
  return renderField(
    form,
    options,
    (id, attributes) =>
      html`<textarea id="${id}" name="${options.name}" rows="${rows}"${options.code ? raw(' class="code" spellcheck="false" autocapitalize="off"') : ''}${attributes}>
${form.value(options.name)}</textarea>`,
  );
}

type Choice = { value: string; label: string };

export function selectField(form: Form, options: FieldOptions & { choices: readonly Choice[] }): Html {
  const chosen = form.value(options.name);
  return renderField(
    form,
    options,
    (id, attributes) =>
      html`<select id="${id}" name="${options.name}"${attributes}>${options.choices.map(
        ({ value, label }) =>
          html`<option value="${value}"${value === chosen ? raw(' selected') : ''}>${label}</option>`,
      )}</select>`,
  );
}

/** One of a few choices, each with an explanation. */
export function radioField(
  form: Form,
  options: Omit<FieldOptions, 'required'> & { choices: readonly (Choice & { hint: Html | string })[] },
): Html {
  const chosen = form.value(options.name);
  const id = fieldId(form, options);
  return html`<fieldset class="field checks"><legend>${options.label}</legend>
${options.hint ? html`<p class="hint">${options.hint}</p>` : ''}
${options.choices.map(
  ({ value, label, hint }, at) =>
    html`<div class="check"><input id="${id}-${at}" name="${options.name}" type="radio" value="${value}" aria-describedby="${id}-${at}-hint"${value === chosen ? raw(' checked') : ''}><label for="${id}-${at}">${label}</label><p class="hint" id="${id}-${at}-hint">${hint}</p></div>`,
)}
</fieldset>`;
}

/** A browser sends nothing for an unchecked box, so a hidden field sends `false`. */
export function checkBox(form: Form, options: Omit<FieldOptions, 'required'>): Html {
  const id = fieldId(form, options);
  return html`<div class="field check">
<input type="hidden" name="${options.name}" value="false">
<input id="${id}" name="${options.name}" type="checkbox" value="true"${form.value(options.name) === 'true' ? raw(' checked') : ''}${options.hint ? html` aria-describedby="${id}-hint"` : ''}>
<label for="${id}">${options.label}</label>
${options.hint ? html`<p class="hint" id="${id}-hint">${options.hint}</p>` : ''}
</div>`;
}

/** A multiple choice, sent as `name[]`. The hidden empty element empties the list when nothing is chosen. */
export function checkBoxes(
  form: Form,
  options: Omit<FieldOptions, 'required'> & { choices: readonly Choice[] },
): Html {
  const chosen = form.values(options.name);
  const id = fieldId(form, options);
  const errors = form.errors(options.name);
  return html`<fieldset class="field checks"><legend>${options.label}</legend>
<input type="hidden" name="${options.name}" value="">
${options.hint ? html`<p class="hint">${options.hint}</p>` : ''}
${options.choices.map(
  ({ value, label }, at) =>
    html`<div class="check"><input id="${id}-${at}" name="${options.name}" type="checkbox" value="${value}"${chosen.includes(value) ? raw(' checked') : ''}><label for="${id}-${at}">${label}</label></div>`,
)}
${errors.length > 0 ? html`<p class="error">${errors.map(code => errorMessage(options.name, code)).join(' ')}</p>` : ''}
</fieldset>`;
}

export function submitButton(label: string, tone: 'primary' | 'plain' | 'danger' = 'primary'): Html {
  return html`<button class="button ${tone}" type="submit">${label}</button>`;
}

/** A form with a single button. */
export function actionButton(
  form: Form,
  label: string,
  options: { tone?: 'primary' | 'plain' | 'danger' } & Confirmation = {},
): Html {
  const { tone = 'plain', ...question } = options;
  return renderForm(form, {
    className: 'inline',
    ...question,
    fields: [],
    submit: submitButton(label, tone),
  });
}
