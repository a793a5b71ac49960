// Copies the write-ahead log into the database file (a checkpoint) in a thread of its own, because it waits for the disk
// and requests would wait with it.

import { Worker } from 'node:worker_threads';
import { nativeBindingPath } from '../../asset.ts';
import type { Db } from './db.ts';

/** The log is copied when it has this many pages. More at once would keep the disk busy while requests commit. */
const CHECKPOINT_PAGES = 1_000;
/** From this size on, the main thread helps, so that the log does not grow without limit. */
const MAX_PAGES = 8_000;
/** An idle thread ends, because it uses several megabytes. */
const IDLE_MS = 10_000;

type Options = { db: Db; onFailure(error: Error): void; idleMs?: number; bindingPath?: string };

/**
 * Checks the size of the log after each transaction. After a failure, the main thread makes all checkpoints, as it does
 * in every program that does not call this.
 */
export function startCheckpoints({
  db,
  onFailure,
  idleMs = IDLE_MS,
  bindingPath = nativeBindingPath(),
}: Options): { stop(): Promise<void> } {
  const readLog = db.sqlite.prepare<[], { log: bigint }>('PRAGMA wal_checkpoint(NOOP)');
  const databasePath = db.sqlite.name;
  let thread: Worker | undefined;
  let idle: NodeJS.Timeout | undefined;
  let finish = () => {};

  const startThread = () => {
    // Neither options of Node nor variables of the server: the thread needs none.
    const started = new Worker(`(${checkpointOnMessage})()`, {
      eval: true,
      workerData: { databasePath, bindingPath },
      execArgv: [],
      env: {},
    });
    started.unref();
    started.on('message', () => {
      finish();
      idle = setTimeout(endThread, idleMs).unref();
    });
    started.on('error', error => {
      stop();
      db.sqlite.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
      onFailure(error as Error);
    });
    return started;
  };
  const endThread = async () => {
    const ended = thread;
    thread = undefined;
    clearTimeout(idle);
    await ended?.terminate();
  };
  const stop = async () => {
    db.onWrite = () => {};
    await endThread();
    finish();
  };

  db.sqlite.pragma(`wal_autocheckpoint = ${MAX_PAGES}`);
  db.onWrite = () => {
    if (db.checkpoint || Number(readLog.get()?.log) < CHECKPOINT_PAGES) return;
    clearTimeout(idle);
    db.checkpoint = new Promise(resolve => {
      finish = () => {
        db.checkpoint = undefined;
        resolve();
      };
    });
    thread ??= startThread();
    thread.postMessage('checkpoint');
  };
  return { stop };
}

/**
 * Runs in the thread. It gets there as source text, since the executable has no file for it, and so imports nothing.
 * SQLite must exist only once in a process, or its locks do not work: both threads load it from the same path.
 */
function checkpointOnMessage(): void {
  const { parentPort, workerData } = process.getBuiltinModule('node:worker_threads');
  type Connection = { exec(query: string): void };
  type Binding = {
    initialize(...constructors: unknown[]): void;
    Database: new (...options: unknown[]) => Connection;
  };
  const module = { exports: {} as Binding };
  process.dlopen(module, workerData.bindingPath);
  const none = () => {};
  module.exports.initialize(Error, none, none, none, none);
  const { databasePath: path } = workerData;
  // In memory: no, read only: no, must exist: yes, timeout, no logger, no content.
  const connection = new module.exports.Database(path, path, false, false, true, 0, null, null);
  connection.exec('PRAGMA synchronous = FULL');
  parentPort?.on('message', () => {
    // Passive: it neither waits for others nor makes them wait, and copies what no reader needs in its old state.
    connection.exec('PRAGMA wal_checkpoint(PASSIVE)');
    parentPort.postMessage('done');
  });
}
