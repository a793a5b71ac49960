// Reads test reports in XML piece by piece, and lets others run between the pieces. A report may be hostile: the time and
// the memory that it costs are bounded. A report that breaks the rules of XML is read as far as it makes sense.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { SaxesParser } from 'saxes';
import { type ReportEvents, ReportStop } from '../domain/result/junit.ts';

/** Why a report was not read to its end, or what is wrong in it. */
export type XmlProblem = { line: number; message: string };

const PIECE_BYTES = 8 * 1024;
const TURN_MS = 1;
const MAX_BYTES = 32 * 1024 * 1024;
const MAX_DEPTH = 64;
const MAX_ATTRIBUTES = 256;
const MAX_NAME_CHARACTERS = 1_000;
const MAX_TOKEN_CHARACTERS = 64 * 1024;
const MAX_ERRORS = 20;
const MAX_DECLARATION_BYTES = 1024;

/** Errors of the parser after which nothing is missing: it leaves what it complains about as it is. */
const harmless = new Set([
  'malformed character entity.',
  'the string "]]>" is disallowed in char data.',
  'an XML declaration must be at the start of the document.',
]);

const forbiddenCharacters = /[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g;

/** Passes the elements of a report to `events`. Returns undefined if the whole report is well-formed. */
export async function readReportXml(
  bytes: AsyncIterable<Buffer>,
  events: ReportEvents,
): Promise<XmlProblem | undefined> {
  const parser = new ReportParser(events);
  let decode: ((piece?: Buffer) => string) | undefined;
  let readBytes = 0;
  let turnEndsAt = performance.now() + TURN_MS;
  try {
    for await (const piece of piecesOf(bytes)) {
      readBytes += piece.length;
      if (readBytes > MAX_BYTES)
        throw new ReportStop('The report is larger than 32 MiB. The rest was left out.');
      decode ??= createDecoder(piece);
      parser.writePiece(decode(piece));
      if (performance.now() < turnEndsAt) continue;
      await nextTurn();
      turnEndsAt = performance.now() + TURN_MS;
    }
    parser.finish(decode?.() ?? '');
  } catch (error) {
    if (!(error instanceof ReportStop)) throw error;
    parser.problem ??= { line: parser.line, message: error.message };
  }
  return parser.problem;
}

/** Whether a file that begins with these bytes is a report: its root is a test suite. */
export function isReport(head: Buffer): boolean {
  const text = createDecoder(head)(head);
  const spaces = /\s*/y;
  let at = 0;
  for (;;) {
    spaces.lastIndex = at;
    at += spaces.exec(text)?.[0].length ?? 0;
    const ending = text.startsWith('<?', at) ? '?>' : text.startsWith('<!--', at) ? '-->' : undefined;
    if (ending === undefined) break;
    const end = text.indexOf(ending, at);
    if (end === -1) return false;
    at = end + ending.length;
  }
  return /^<(?:!DOCTYPE\s{1,9})?(?:[\w.-]{1,99}:)?testsuites?[\s/>]/.test(text.slice(at, at + 200));
}

/** The fields of the parser that grow with an unfinished token. It has no limits of its own. */
type Token = { state: number; text: string; name: string; entity: string; piTarget: string };

// The states of the parser in which it gathers text of an element, as text and as CDATA, and a document type.
const isTextState = (state: number) => state === 13 || state === 14 || (state >= 20 && state <= 22);
const isDoctypeState = (state: number) => state >= 2 && state <= 12;

class ReportParser extends SaxesParser {
  /** The first one. */
  problem: XmlProblem | undefined;
  #errors = 0;
  #attributes = 0;
  #isInTag = false;
  #isFinishing = false;
  readonly #events: ReportEvents;

  constructor(events: ReportEvents) {
    super({ defaultXMLVersion: '1.0', forceXMLVersion: true });
    this.#events = events;
    let depth = 0;
    this.on('opentagstart', () => {
      this.#attributes = 0;
      this.#isInTag = true;
    });
    this.on('attribute', () => {
      if (++this.#attributes > MAX_ATTRIBUTES)
        throw new ReportStop(
          `An element has more than ${MAX_ATTRIBUTES} attributes. The rest of the report was left out.`,
        );
    });
    this.on('opentag', ({ name, attributes }) => {
      this.#isInTag = false;
      if (++depth > MAX_DEPTH)
        throw new ReportStop(
          `The elements are nested more than ${MAX_DEPTH} deep. The rest of the report was left out.`,
        );
      // The name without a namespace.
      events.open(name.slice(name.indexOf(':') + 1), attributes);
    });
    this.on('closetag', () => {
      depth--;
      events.close();
    });
    this.on('text', text => events.text(text));
    this.on('cdata', text => events.text(text));
    this.on('doctype', () => this.#refuseDoctype());
  }

  writePiece(text: string): void {
    this.write(text.replace(forbiddenCharacters, '\uFFFD'));
    const token = this as unknown as Token;
    if (isDoctypeState(token.state)) this.#refuseDoctype();
    if (Math.max(token.name.length, token.entity.length, token.piTarget.length) > MAX_NAME_CHARACTERS)
      throw new ReportStop('The report has a name that is too long. The rest of the report was left out.');
    if (token.text.length > MAX_TOKEN_CHARACTERS) this.#shorten(token);
  }

  finish(rest: string): void {
    this.writePiece(rest);
    this.#isFinishing = true;
    this.close();
  }

  // The parser calls this for each error. It continues afterwards.
  override fail(message: string): this {
    if (harmless.has(message)) return this;
    this.problem ??= { line: this.line, message: this.#explain(message) };
    if (++this.#errors >= MAX_ERRORS && !this.#isFinishing) throw new ReportStop(message);
    return this;
  }

  #explain(message: string): string {
    if (message === 'document must contain a root element.') return 'The report holds no XML element.';
    return this.#isFinishing ? 'The report is cut off.' : `The report is not well-formed: ${message}`;
  }

  /** Text is passed on in parts. Of an attribute the middle is dropped. Nobody needs comments. */
  #shorten(token: Token): void {
    const { text, state } = token;
    const half = MAX_TOKEN_CHARACTERS / 2;
    token.text = this.#isInTag ? text.slice(0, half) + text.slice(-half) : '';
    if (!this.#isInTag && isTextState(state)) this.#events.text(text);
  }

  #refuseDoctype(): never {
    throw new ReportStop('The report has a document type (DOCTYPE). Such a report is not read.');
  }
}

async function* piecesOf(bytes: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let held: Buffer = Buffer.alloc(0);
  for await (const chunk of bytes) {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    while (held.length >= PIECE_BYTES) {
      yield held.subarray(0, PIECE_BYTES);
      held = held.subarray(PIECE_BYTES);
    }
  }
  if (held.length > 0) yield held;
}

/**
 * The encoding is what the first bytes show, or what the declaration says. Bytes that are wrong in it become U+FFFD. The
 * returned function is called for each piece, and without one at the end.
 */
function createDecoder(head: Buffer): (piece?: Buffer) => string {
  const decoder = new TextDecoder(encodingOf(head));
  return piece => (piece ? decoder.decode(piece, { stream: true }) : decoder.decode());
}

function encodingOf(head: Buffer): string {
  if (head[0] === 0xff && head[1] === 0xfe) return 'utf-16le';
  if (head[0] === 0xfe && head[1] === 0xff) return 'utf-16be';
  if (head[0] !== 0 && head[1] === 0) return 'utf-16le';
  if (head[0] === 0 && head[1] !== 0) return 'utf-16be';
  const declaration = head.toString('latin1', 0, MAX_DECLARATION_BYTES);
  const label =
    /^(?:\xef\xbb\xbf)?\s*<\?xml\s[^>]*?encoding\s*=\s*["']([\w.:-]{1,40})["']/i.exec(declaration)?.[1] ?? '';
  // A declaration that can be read byte by byte is not in UTF-16, whatever it says.
  if (/^(?:utf|ucs|iso-10646)/i.test(label)) return 'utf-8';
  try {
    return new TextDecoder(label || 'utf-8').encoding;
  } catch {
    return 'utf-8';
  }
}
