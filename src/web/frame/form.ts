// Forms: fields with label, hint and error, holding what was typed when a form is shown again because it was refused.

import { html, raw } from 'hono/html';
import type { ErrorCode } from '../../domain/refusal.ts';
import { wordsFor } from './error-text.ts';
import type { Guest, Html } from './visit.ts';

/** One form of a page: where it is sent, what its fields hold, and what was wrong with them. */
export type Form = {
  action: string;
  /** Empty before there is a session. */
  csrf: string;
  /** Tells the fields of several forms of one page apart. */
  id: string;
  value(name: string): string;
  values(list: string): readonly string[];
  errors(name: string): readonly ErrorCode[];
  /** Shown again because it was refused: the field that is wrong gets the focus, not the first one. */
  isRefused: boolean;
  /** What is wrong and was said beside no field so far. */
  unsaid(): readonly string[];
};

/** The form that is sent to `action`; `initial` is what it holds before anyone has typed. */
export function formTo(
  guest: Pick<Guest, 'session' | 'refused'>,
  action: string,
  initial: Record<string, string | readonly string[]> = {},
): Form {
  const refused = guest.refused?.action === action ? guest.refused : undefined;
  const said = new Set<string>();
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
      said.add(name);
      return refused?.errors[name] ?? [];
    },
    isRefused: refused !== undefined && Object.keys(refused.errors).length > 0,
    unsaid: () =>
      Object.entries(refused?.errors ?? {})
        .filter(([name]) => !said.has(name))
        .flatMap(([name, codes]) => codes.map(code => wordsFor(name, code))),
  };
}

/** The form element. What is wrong with no field of its own is said at its top. */
export function renderForm(
  form: Form,
  parts: { fields: Html | Html[]; submit: Html | Html[]; className?: string; confirm?: string },
): Html {
  const problems = form.unsaid();
  return html`<form method="post" action="${form.action}" class="${parts.className ?? 'form'}"${parts.confirm ? html` data-confirm="${parts.confirm}"` : ''}>
${form.csrf ? html`<input type="hidden" name="csrf" value="${form.csrf}">` : ''}
${problems.length > 0 ? html`<div class="flash failed" role="alert">${problems.join(' ')}</div>` : ''}
${parts.fields}
<div class="buttons">${parts.submit}</div>
</form>`;
}

type FieldOptions = {
  name: string;
  label: string;
  hint?: Html | string;
  required?: boolean;
  autofocus?: boolean;
};

function surround(form: Form, options: FieldOptions, control: (id: string, described: Html) => Html): Html {
  const id = `${form.id}-${options.name.replace(/[^A-Za-z0-9]+/g, '-')}`;
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
${errors.length > 0 ? html`<p class="error" id="${id}-error">${errors.map(code => wordsFor(options.name, code)).join(' ')}</p>` : ''}
</div>`;
}

export function textField(
  form: Form,
  options: FieldOptions & {
    type?: 'text' | 'email' | 'password' | 'url' | 'search' | 'number';
    autocomplete?: string;
    placeholder?: string;
    /** Names, addresses and code: no spelling, no capitals, a typewriter's letters. */
    code?: boolean;
    minLength?: number;
  },
): Html {
  const type = options.type ?? 'text';
  return surround(
    form,
    options,
    (id, attributes) =>
      html`<input id="${id}" name="${options.name}" type="${type}" value="${type === 'password' ? '' : form.value(options.name)}" autocomplete="${options.autocomplete ?? 'off'}"${options.placeholder ? html` placeholder="${options.placeholder}"` : ''}${options.minLength ? html` minlength="${options.minLength}"` : ''}${options.code ? raw(' class="code" spellcheck="false" autocapitalize="off"') : ''}${attributes}>`,
  );
}

export function textArea(form: Form, options: FieldOptions & { rows?: number; code?: boolean }): Html {
  return surround(
    form,
    options,
    (id, attributes) =>
      html`<textarea id="${id}" name="${options.name}" rows="${options.rows ?? 3}"${options.code ? raw(' class="code" spellcheck="false" autocapitalize="off"') : ''}${attributes}>
${form.value(options.name)}</textarea>`,
  );
}

type Choice = { value: string; label: string };

export function selectField(form: Form, options: FieldOptions & { choices: readonly Choice[] }): Html {
  const chosen = form.value(options.name);
  return surround(
    form,
    options,
    (id, attributes) =>
      html`<select id="${id}" name="${options.name}"${attributes}>${options.choices.map(
        ({ value, label }) =>
          html`<option value="${value}"${value === chosen ? raw(' selected') : ''}>${label}</option>`,
      )}</select>`,
  );
}

/** On or off. The hidden field says off: a browser sends nothing for a box that is not ticked. */
export function checkBox(form: Form, options: Omit<FieldOptions, 'required'>): Html {
  const id = `${form.id}-${options.name.replace(/[^A-Za-z0-9]+/g, '-')}`;
  return html`<div class="field check">
<input type="hidden" name="${options.name}" value="false">
<input id="${id}" name="${options.name}" type="checkbox" value="true"${form.value(options.name) === 'true' ? raw(' checked') : ''}${options.hint ? html` aria-describedby="${id}-hint"` : ''}>
<label for="${id}">${options.label}</label>
${options.hint ? html`<p class="hint" id="${id}-hint">${options.hint}</p>` : ''}
</div>`;
}

/** Several of a list, sent as `name[]`; none chosen empties it. */
export function checkBoxes(
  form: Form,
  options: Omit<FieldOptions, 'required'> & { choices: readonly Choice[] },
): Html {
  const chosen = form.values(options.name);
  const id = `${form.id}-${options.name.replace(/[^A-Za-z0-9]+/g, '-')}`;
  const errors = form.errors(options.name);
  return html`<fieldset class="field checks"><legend>${options.label}</legend>
<input type="hidden" name="${options.name}" value="">
${options.hint ? html`<p class="hint">${options.hint}</p>` : ''}
${options.choices.map(
  ({ value, label }, at) =>
    html`<div class="check"><input id="${id}-${at}" name="${options.name}" type="checkbox" value="${value}"${chosen.includes(value) ? raw(' checked') : ''}><label for="${id}-${at}">${label}</label></div>`,
)}
${errors.length > 0 ? html`<p class="error">${errors.map(code => wordsFor(options.name, code)).join(' ')}</p>` : ''}
</fieldset>`;
}

export function submitButton(label: string, tone: 'primary' | 'plain' | 'danger' = 'primary'): Html {
  return html`<button class="button ${tone}" type="submit">${label}</button>`;
}

/** A form that is one button: cancel, rerun, revoke. `confirm` is asked first where scripts run. */
export function actionButton(
  form: Form,
  label: string,
  options: {
    tone?: 'primary' | 'plain' | 'danger';
    confirm?: string;
    hidden?: Readonly<Record<string, string>>;
  } = {},
): Html {
  return renderForm(form, {
    className: 'inline',
    ...(options.confirm !== undefined && { confirm: options.confirm }),
    fields: Object.entries(options.hidden ?? {}).map(
      ([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`,
    ),
    submit: submitButton(label, options.tone ?? 'plain'),
  });
}
