// The version that this is: the one in package.json, wherever it is run from.

import manifest from '../package.json' with { type: 'json' };

export const { version } = manifest;
