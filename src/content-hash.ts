// Computes the checksums of large content on another thread: SHA-256 of a GiB takes a second, and this thread has to read,
// write and answer requests meanwhile.

import { Worker } from 'node:worker_threads';

export type ContentHash = Disposable & {
  /** Begins the next content. */
  begin(): void;
  /** Copies the bytes. Waits while the other thread is behind. */
  update(bytes: Buffer): Promise<void>;
  /** The checksums of the content since `begin`. */
  end(): Promise<Checksums>;
};

export type Checksums = { crc32: number; sha256: string };

const BLOCK_BYTES = 512 << 10;
const BLOCKS = 4;

type Message = { block?: number; bytes?: number; isEnd?: true; isBegin?: true };

export function startContentHash(): ContentHash {
  const shared = new SharedArrayBuffer(BLOCK_BYTES * BLOCKS);
  const blocks = Array.from({ length: BLOCKS }, (_, at) =>
    Buffer.from(shared, at * BLOCK_BYTES, BLOCK_BYTES),
  );
  const worker = new Worker(`(${hashOnMessage})()`, {
    eval: true,
    workerData: { shared, blockBytes: BLOCK_BYTES },
    execArgv: [],
    env: {},
    resourceLimits: { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2 },
  });
  worker.unref();
  let sent = 0;
  let done = 0;
  let filled = 0;
  let failure: unknown;
  let wake = () => {};
  let ended = Promise.withResolvers<Checksums>();
  worker.on('message', (result: Checksums | 'done') => {
    if (result === 'done') done += 1;
    else ended.resolve(result);
    wake();
  });
  const fail = (error: unknown) => {
    failure ??= error;
    ended.reject(failure);
    wake();
  };
  worker.on('error', fail);
  worker.on('exit', () => fail(new Error('the thread for checksums ended')));
  ended.promise.catch(() => {});
  const post = (message: Message) => worker.postMessage(message);

  async function sendBlock(): Promise<void> {
    post({ block: sent % BLOCKS, bytes: filled });
    sent += 1;
    filled = 0;
    // The next block is free when its previous content is hashed.
    while (sent - done >= BLOCKS) {
      if (failure !== undefined) throw failure;
      await new Promise<void>(resolve => {
        wake = resolve;
      });
    }
  }

  return {
    begin() {
      filled = 0;
      ended = Promise.withResolvers();
      ended.promise.catch(() => {});
      post({ isBegin: true });
    },
    async update(bytes) {
      for (let taken = 0; taken < bytes.length; ) {
        const piece = bytes.subarray(taken, taken + BLOCK_BYTES - filled);
        (blocks[sent % BLOCKS] as Buffer).set(piece, filled);
        taken += piece.length;
        filled += piece.length;
        if (filled === BLOCK_BYTES) await sendBlock();
      }
    },
    async end() {
      if (filled > 0) await sendBlock();
      if (failure !== undefined) throw failure;
      post({ isEnd: true });
      return ended.promise;
    },
    [Symbol.dispose]() {
      void worker.terminate();
    },
  };
}

/** Runs in the thread. It gets there as source text, since the executable has no file for it, and so imports nothing. */
function hashOnMessage(): void {
  const { parentPort, workerData } = process.getBuiltinModule('node:worker_threads');
  const { createHash } = process.getBuiltinModule('node:crypto');
  const { crc32 } = process.getBuiltinModule('node:zlib');
  let hash = createHash('sha256');
  let sum = 0;
  parentPort?.on('message', ({ block, bytes, isBegin, isEnd }: Message) => {
    if (isBegin) {
      hash = createHash('sha256');
      sum = 0;
    } else if (isEnd) parentPort.postMessage({ crc32: sum, sha256: hash.digest('hex') });
    else {
      const content = Buffer.from(workerData.shared, (block as number) * workerData.blockBytes, bytes);
      hash.update(content);
      sum = crc32(content, sum);
      parentPort.postMessage('done');
    }
  });
}
