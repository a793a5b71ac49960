// Raw HTTP/2 frames, for clients that misbehave as no library would.

export function frame(type: number, flags: number, stream: number, payload: Buffer | string = ''): Buffer {
  const body = Buffer.from(payload as string, 'latin1');
  const head = Buffer.alloc(9);
  head.writeUIntBE(body.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, body]);
}

export const PREFACE = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(4, 0, 0)]);
export const HEADERS = 1;
export const RST_STREAM = 3;
export const CONTINUATION = 9;
export const END_STREAM = 0x1;
export const END_HEADERS = 0x4;
/** `:method GET`, `:scheme https`, `:path /` and an authority of one letter, in HPACK. */
export const REQUEST = Buffer.from([0x82, 0x87, 0x84, 0x41, 0x01, 0x78]);
/** The ID of the n-th stream that a client opens. */
export const streamId = (at: number) => at * 2 + 1;

/** The n-th stream, opened and reset at once. */
export const resetStream = (at: number) =>
  Buffer.concat([
    frame(HEADERS, END_STREAM | END_HEADERS, streamId(at), REQUEST),
    frame(RST_STREAM, 0, streamId(at), '\0\0\0\x08'),
  ]);
