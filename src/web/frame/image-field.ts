// The field that chooses the image of a suite or a dependency.

import type { Services } from '../../api/endpoint.ts';
import { defaultImage, usableImages } from '../../store/images.ts';
import { type Form, selectField, textField } from './form.ts';
import type { Html } from './visit.ts';

/** A choice of those that may be used; where any may, the name of one. */
export function imageField({ db, imageSettings }: Services, form: Form, hint: string): Html {
  const defaultName = defaultImage(db, imageSettings);
  const field = { name: 'image', label: 'Image' };
  if (imageSettings.anyImage)
    return textField(form, {
      ...field,
      code: true,
      hint: `${hint} Empty for the default one, ${defaultName}.`,
    });
  const usable = usableImages(db, imageSettings);
  const chosen = form.value('image');
  return selectField(form, {
    ...field,
    hint: `${hint} An administrator brings in others with “assay image import”.`,
    choices: [
      { value: '', label: `The default one (${defaultName})` },
      ...usable.map(name => ({ value: name, label: name })),
      // One that may be used no more is shown, so that saving does not change it unseen.
      ...(chosen === '' || usable.includes(chosen)
        ? []
        : [{ value: chosen, label: `${chosen} (never imported)` }]),
    ],
  });
}
