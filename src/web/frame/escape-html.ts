// Text for HTML that is not made with Hono's `html`, which takes too long for hundreds of elements.

const escapes: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** Safe in an element and in a quoted attribute. */
export const escapeHtml = (text: string) => text.replaceAll(/[&<>"']/g, one => escapes[one] as string);
