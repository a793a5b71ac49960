// The version from package.json, both from source and in the executable.

import manifest from '../package.json' with { type: 'json' };

export const { version } = manifest;
