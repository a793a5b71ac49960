// Escapes text for HTML that is built as a string, without Hono's `html`.

const escapes: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** Safe in an element and in a quoted attribute. */
export const escapeHtml = (text: string) => text.replaceAll(/[&<>"']/g, one => escapes[one] as string);
