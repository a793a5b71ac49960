// Terminal colours as CSS classes, created when they are first needed. Text that is too close to its background is moved
// towards white or black until it can be read.

/** @import { Colour, Rgb, Style } from './types.ts' */

/** @type {Rgb} */
const background = [22, 24, 29];
/** @type {Rgb} */
const foreground = [215, 220, 226];
const MIN_CONTRAST = 4.6;

const basic =
  '3b4048 f47067 6bc46d daaa3f 6cb6ff d2a8ff 56d4dd cdd5de 8b949e ff938a 8ddb8c eac55f 96d0ff e2c5ff b3f0ff ffffff'
    .split(' ')
    .map(hex => mapRgb([0, 2, 4], at => Number.parseInt(hex.slice(at, at + 2), 16)));

/**
 * @param {Rgb} colour
 * @param {(value: number, at: 0 | 1 | 2) => number} change
 * @returns {Rgb}
 */
function mapRgb([red, green, blue], change) {
  return [change(red, 0), change(green, 1), change(blue, 2)];
}

/**
 * @param {Colour} colour
 * @returns {Rgb}
 */
function rgbOf(colour) {
  if (Array.isArray(colour)) return colour;
  if (colour < 16) return basic[colour] ?? foreground;
  const grey = (colour - 232) * 10 + 8;
  if (colour >= 232) return [grey, grey, grey];
  return mapRgb([36, 6, 1], place => {
    const step = Math.floor((colour - 16) / place) % 6;
    return step === 0 ? 0 : step * 40 + 55;
  });
}

/** @param {Rgb} colour */
function luminance(colour) {
  const [red, green, blue] = mapRgb(colour, value => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/**
 * @param {Rgb} one
 * @param {Rgb} other
 */
function contrast(one, other) {
  const [first, second] = [luminance(one), luminance(other)];
  return (Math.max(first, second) + 0.05) / (Math.min(first, second) + 0.05);
}

/**
 * @param {Rgb} from
 * @param {Rgb} to
 * @param {number} share
 */
const mix = (from, to, share) => mapRgb(from, (value, at) => Math.round(value + (to[at] - value) * share));

/**
 * @param {Rgb} fore
 * @param {Rgb} back
 */
function readable(fore, back) {
  /** @type {Rgb} */
  const white = [255, 255, 255];
  /** @type {Rgb} */
  const black = [0, 0, 0];
  const far = contrast(white, back) >= contrast(black, back) ? white : black;
  for (let share = 0; share < 1; share += 0.1) {
    const moved = mix(fore, far, share);
    if (contrast(moved, back) >= MIN_CONTRAST) return moved;
  }
  return far;
}

const sheet = new CSSStyleSheet();
document.adoptedStyleSheets.push(sheet);
/** @type {Map<Style, string | undefined>} */
const classes = new Map();

/**
 * The class of a style; undefined where the style looks like the default.
 * @param {Style} style
 */
export function classOf(style) {
  if (classes.has(style)) return classes.get(style);
  let fore = style.fore === undefined ? foreground : rgbOf(style.fore);
  let back = style.back === undefined ? background : rgbOf(style.back);
  if (style.inverse) [fore, back] = [back, fore];
  const hasColour = [style.fore, style.back, style.inverse, style.dim].some(one => one !== undefined);
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
