// Every transition of every state machine, allowed and refused: what is not in these tables must be impossible.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildMachine, buildRequestMachine } from '../../src/domain/build.ts';
import { compileMachine, marketplaceState } from '../../src/domain/dependency.ts';
import { deployMachine } from '../../src/domain/deploy.ts';
import { type Machine, nextState, unfinishedStates } from '../../src/domain/machine.ts';

type Table = {
  machine: Machine<string, string>;
  states: readonly string[];
  events: readonly string[];
  /** One transition per line: state event → next. */
  edges: string;
  final: readonly string[];
  /** Events that are allowed in a final state. */
  beyond?: readonly string[];
};

const tables: Record<string, Table> = {
  build: {
    machine: buildMachine as Machine<string, string>,
    states: ['enqueued', 'running', 'passed', 'failed', 'errored', 'timed_out', 'canceled'],
    events: ['start', 'pass', 'fail', 'error', 'time_out', 'cancel', 'requeue'],
    edges: `
      enqueued start running
      enqueued cancel canceled
      enqueued error errored
      running pass passed
      running fail failed
      running error errored
      running time_out timed_out
      running cancel canceled
      running requeue enqueued`,
    final: ['passed', 'failed', 'errored', 'timed_out', 'canceled'],
  },
  'build request': {
    machine: buildRequestMachine as Machine<string, string>,
    states: ['enqueued', 'fetching', 'building', 'passed', 'failed', 'errored', 'canceled', 'skipped'],
    events: ['fetch', 'build', 'pass', 'fail', 'error', 'cancel', 'skip', 'requeue', 'rerun'],
    edges: `
      enqueued fetch fetching
      enqueued cancel canceled
      enqueued error errored
      fetching build building
      fetching skip skipped
      fetching error errored
      fetching cancel canceled
      fetching requeue enqueued
      building pass passed
      building fail failed
      building error errored
      building cancel canceled
      passed rerun building
      failed rerun building
      errored rerun building
      canceled rerun building`,
    final: ['passed', 'failed', 'errored', 'canceled', 'skipped'],
    beyond: ['rerun'],
  },
  compile: {
    machine: compileMachine as Machine<string, string>,
    states: ['waiting_archive_upload', 'enqueued_for_compile', 'compiling', 'compiled', 'compile_failed'],
    events: ['upload', 'recompile', 'import', 'start', 'compile', 'fail', 'cancel', 'requeue'],
    edges: `
      waiting_archive_upload upload enqueued_for_compile
      waiting_archive_upload import compiled
      enqueued_for_compile upload enqueued_for_compile
      enqueued_for_compile start compiling
      enqueued_for_compile fail compile_failed
      enqueued_for_compile cancel compile_failed
      compiling compile compiled
      compiling fail compile_failed
      compiling cancel compile_failed
      compiling requeue enqueued_for_compile
      compiled upload enqueued_for_compile
      compiled recompile enqueued_for_compile
      compiled import compiled
      compile_failed upload enqueued_for_compile
      compile_failed recompile enqueued_for_compile
      compile_failed import compiled`,
    final: ['waiting_archive_upload', 'compiled', 'compile_failed'],
    beyond: ['upload', 'recompile', 'import'],
  },
  deploy: {
    machine: deployMachine as Machine<string, string>,
    states: ['enqueued', 'deploying', 'deployed', 'failed', 'canceled'],
    events: ['start', 'deploy', 'fail', 'cancel'],
    edges: `
      enqueued start deploying
      enqueued cancel canceled
      enqueued fail failed
      deploying deploy deployed
      deploying fail failed
      deploying cancel canceled`,
    final: ['deployed', 'failed', 'canceled'],
  },
};

for (const [name, { machine, states, events, edges, final, beyond = [] }] of Object.entries(tables)) {
  const expected = new Map(
    edges
      .trim()
      .split('\n')
      .map(line => line.trim().split(' '))
      .map(([state, event, next]) => [`${state} ${event}`, next]),
  );

  test(`a ${name} has exactly these states`, () => {
    assert.deepEqual(Object.keys(machine).toSorted(), states.toSorted());
    const used = Object.values(machine).flatMap(row => Object.keys(row));
    assert.deepEqual([...new Set(used)].toSorted(), events.toSorted());
  });

  for (const state of states)
    for (const event of events) {
      const next = expected.get(`${state} ${event}`);
      test(`a ${name} that is ${state} ${next ? `is ${next} after` : 'refuses'} ${event}`, () => {
        assert.equal(nextState(machine, state, event), next);
      });
    }

  for (const state of states)
    test(`a ${name} that is ${state} ${final.includes(state) ? 'is finished' : 'is not finished'}`, () => {
      assert.equal(unfinishedStates(machine, ...beyond).includes(state), !final.includes(state));
    });
}

test('only a compiled dependency is shown as shared', () => {
  for (const compileState of Object.keys(compileMachine) as (keyof typeof compileMachine)[]) {
    assert.equal(marketplaceState({ compileState, shared: false }), compileState);
    assert.equal(
      marketplaceState({ compileState, shared: true }),
      compileState === 'compiled' ? 'shared' : compileState,
    );
  }
});
