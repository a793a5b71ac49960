// Runs a computation in steps to its end, without pausing.
import type { Steps } from '../../src/domain/result/steps.ts';

export function finish<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}
