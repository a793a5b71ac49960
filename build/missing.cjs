// Replaces packages and native add-ons that a package tries to load but does not need.
throw new Error('not part of this executable');
