// The colours of a terminal as classes, made as they are met. Whatever was printed stays readable: a text too close to
// its background is moved towards white or black.

const background = [22, 24, 29];
const foreground = [215, 220, 226];
const LEAST_CONTRAST = 4.6;

const basic =
  '3b4048 f47067 6bc46d daaa3f 6cb6ff d2a8ff 56d4dd cdd5de 8b949e ff938a 8ddb8c eac55f 96d0ff e2c5ff b3f0ff ffffff'
    .split(' ')
    .map(hex => [0, 2, 4].map(at => Number.parseInt(hex.slice(at, at + 2), 16)));

function colourOf(colour) {
  if (Array.isArray(colour)) return colour;
  if (colour < 16) return basic[colour];
  if (colour >= 232) return [0, 0, 0].fill((colour - 232) * 10 + 8);
  return [36, 6, 1]
    .map(place => Math.floor((colour - 16) / place) % 6)
    .map(step => (step === 0 ? 0 : step * 40 + 55));
}

function luminance(colour) {
  const [red, green, blue] = colour.map(value => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

const mix = (from, to, share) => from.map((value, at) => Math.round(value + (to[at] - value) * share));

function readable(fore, back) {
  const far = [
    [255, 255, 255],
    [0, 0, 0],
  ].sort((a, b) => contrast(b, back) - contrast(a, back))[0];
  for (let share = 0; share < 1; share += 0.1) {
    const moved = mix(fore, far, share);
    if (contrast(moved, back) >= LEAST_CONTRAST) return moved;
  }
  return far;
}

const sheet = new CSSStyleSheet();
document.adoptedStyleSheets.push(sheet);
const classes = new Map();

/** The class of a style; undefined where it looks as usual. */
export function classOf(style) {
  if (classes.has(style)) return classes.get(style);
  let fore = style.fore === undefined ? foreground : colourOf(style.fore);
  let back = style.back === undefined ? background : colourOf(style.back);
  if (style.inverse) [fore, back] = [back, fore];
  const hasColour = [style.fore, style.back, style.inverse, style.dim].some(part => part !== undefined);
  const lines = [style.underline && 'underline', style.strike && 'line-through'].filter(Boolean).join(' ');
  const rules = [
    hasColour && `color:rgb(${readable(style.dim ? mix(fore, back, 0.35) : fore, back)})`,
    back !== background && `background:rgb(${back})`,
    style.bold && 'font-weight:700',
    style.italic && 'font-style:italic',
    lines && `text-decoration:${lines}`,
  ].filter(Boolean);
  const name = rules.length > 0 ? `c${classes.size}` : undefined;
  if (name) sheet.insertRule(`.log-lines .${name}{${rules.join(';')}}`, sheet.cssRules.length);
  classes.set(style, name);
  return name;
}
