// Frees the memory of a large buffer at once. The garbage collector would let dozens of MiB of them pile up first.

/** Smaller buffers may be in a pool that others use. */
const MIN_BYTES = 16 << 10;

/** The caller must be the only one who uses the buffer. One that is part of a larger buffer stays as it is. */
export function freeBuffer({ buffer, length }: Buffer): void {
  if (length >= MIN_BYTES && buffer instanceof ArrayBuffer && buffer.byteLength === length)
    buffer.transfer(0);
}
