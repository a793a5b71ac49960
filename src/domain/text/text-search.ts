// Finding a text in a text, in linear time whatever the two are.

/** Where the needle first occurs at or after `from`, in UTF-16 units; -1 where it does not. */
export type Search = (value: string, from: number) => number;

// The engine's own search is far faster, but only for needles this short is it also linear at worst.
const nativeMax = 250;

export function compileSearch(needle: string): Search {
  if (needle.length <= nativeMax) return (value, from) => value.indexOf(needle, from);
  const borders = bordersOf(needle);
  return (value, from) => {
    let matched = 0;
    for (let at = from; at < value.length; at++) {
      const unit = value.charCodeAt(at);
      while (matched > 0 && needle.charCodeAt(matched) !== unit) matched = borders[matched - 1]!;
      if (needle.charCodeAt(matched) === unit) matched++;
      if (matched === needle.length) return at + 1 - matched;
    }
    return -1;
  };
}

/** Knuth, Morris and Pratt: of each beginning of the text, how much of its end is its beginning again. */
function bordersOf(text: string): Int32Array {
  const borders = new Int32Array(text.length);
  let border = 0;
  for (let at = 1; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    while (border > 0 && text.charCodeAt(border) !== unit) border = borders[border - 1]!;
    if (text.charCodeAt(border) === unit) border++;
    borders[at] = border;
  }
  return borders;
}
