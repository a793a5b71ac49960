// Stands in for native add-ons that a package tries to load and does without where they are missing.
throw new Error('not part of this executable');
