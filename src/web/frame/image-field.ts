// The field that chooses the image of a suite or a dependency.

import type { Services } from '../../api/endpoint.ts';
import { defaultImage, usableImages } from '../../store/images.ts';
import { type Form, selectField, textField } from './form.ts';
import type { Html } from './visit.ts';

/** A choice of the usable images; a text field if any image is allowed. */
export function imageField({ db, imageSettings }: Services, form: Form, hint: string): Html {
  const defaultName = defaultImage(db, imageSettings);
  const field = { name: 'image', label: 'Image' };
  if (imageSettings.anyImage)
    return textField(form, {
      ...field,
      code: true,
      hint: `${hint} Leave empty for the default image, ${defaultName}.`,
    });
  const usable = usableImages(db, imageSettings);
  const chosen = form.value('image');
  return selectField(form, {
    ...field,
    hint: `${hint} An administrator adds others with “assay image import”.`,
    choices: [
      { value: '', label: `Default image (${defaultName})` },
      ...usable.map(name => ({ value: name, label: name })),
      // Offer an image that is no longer usable too, so that saving the form does not silently change it.
      ...(chosen === '' || usable.includes(chosen)
        ? []
        : [{ value: chosen, label: `${chosen} (not imported)` }]),
    ],
  });
}
