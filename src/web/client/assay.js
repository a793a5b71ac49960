// What every page gains from scripts: relative times that stay current, copy buttons, filters, a confirmation before
// something is lost, keyboard shortcuts, the quick switcher and notifications. Every page works without it.

import './confirm.js';
import './copy.js';
import './filter.js';
import './shortcuts.js';
import './switcher.js';
import './times.js';
import './watch.js';
