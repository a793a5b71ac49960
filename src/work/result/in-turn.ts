// Runs background work in turn: each piece begins when those before it have ended.

export type InTurn = {
  /** Resolves when the work has ended. The work must not fail. */
  run(work: () => Promise<void>): Promise<void>;
  /** Resolves when nothing is left to do. */
  idle(): Promise<void>;
};

export function createInTurn(): InTurn {
  let busy: Promise<void> = Promise.resolve();
  return {
    run(work) {
      busy = busy.then(work);
      return busy;
    },
    async idle() {
      for (let last: unknown; last !== busy; ) {
        last = busy;
        await busy;
      }
    },
  };
}
