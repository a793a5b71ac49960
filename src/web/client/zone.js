// Formats times in the time zone that the account chose, or else in that of the browser.

/**
 * @param {string | undefined} locale
 * @param {Intl.DateTimeFormatOptions} options
 */
export function dateFormat(locale, options, timeZone = document.documentElement.dataset.timeZone) {
  try {
    return new Intl.DateTimeFormat(locale, { ...options, timeZone });
  } catch {
    // An older browser may not know the zone.
    return new Intl.DateTimeFormat(locale, options);
  }
}

/** "Mon, 16 Nov 2026, 14:25:37 CET". @type {Intl.DateTimeFormatOptions} */
export const exactStyle = {
  weekday: 'short',
  day: 'numeric',
  month: 'short',
  year: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZoneName: 'short',
};
