// The session that the manual shows is one that really happens.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { normalize, recordSession, sessionInManual } from './recording.ts';
import { renderTerminal } from './terminal.ts';

test('the recorded session of the manual happens again', async () => {
  assert.equal(
    normalize(await recordSession()),
    normalize(sessionInManual()),
    '"node test/client/recording.ts" records it again',
  );
});

test('what the terminal shows is what was written last', () => {
  assert.deepEqual(
    renderTerminal('one\r\n\x1b[31mtwo\x1b[0m\r\n\x1b[2A\r\x1b[Jthree\x1b[K\r\nfo\x1b[?25hur'),
    ['three', 'four'],
  );
  assert.deepEqual(renderTerminal('12345\rab\x1b[K\r\n\r\nc'), ['ab', '', 'c']);
});
