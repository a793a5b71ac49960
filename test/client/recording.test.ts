// The session that the manual shows is one that really happens.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { normalize, recordSession, sessionInManual } from './recording.ts';

test('the recorded session of the manual happens again', async () => {
  assert.equal(
    normalize(await recordSession()),
    normalize(sessionInManual()),
    '"node test/client/recording.ts" records it again',
  );
});
