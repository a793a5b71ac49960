// Settings that this browser keeps. A browser that allows no storage behaves as if nothing was set.

/** @param {string} name */
export function readSetting(name) {
  try {
    return localStorage.getItem(name) ?? '';
  } catch {
    return '';
  }
}

/**
 * @param {string} name
 * @param {string} value Empty removes it.
 */
export function writeSetting(name, value) {
  try {
    if (value === '') localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // Storage is not allowed, or it is full.
  }
}
