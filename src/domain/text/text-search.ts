// Substring search in linear time, even for hostile input.

/** The index of the first match at or after `from`, in UTF-16 units, or -1. */
type Search = (value: string, from: number) => number;

// String.indexOf is far faster, but is linear in the worst case only for needles up to this length.
const maxNativeLength = 250;

export function compileSearch(needle: string): Search {
  if (needle.length <= maxNativeLength) return (value, from) => value.indexOf(needle, from);
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

/** The failure table of Knuth, Morris and Pratt: for each prefix, the length of its longest proper prefix that is also a suffix. */
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
