// SQL conditions for rows that are finished or not, derived from the state machines. The partial indexes of the schema have
// the same text: SQLite uses an index only if a query repeats its condition.

import { FINISHED_REQUESTS, UNFINISHED_BUILDS, UNFINISHED_REQUESTS } from '../../domain/build.ts';
import { UNFINISHED_COMPILES } from '../../domain/dependency.ts';
import { UNFINISHED_DEPLOYS } from '../../domain/deploy.ts';

const oneOf = (column: string, states: readonly string[]) =>
  `${column} IN (${states.map(state => `'${state}'`).join(', ')})`;

export const unfinished = {
  build: oneOf('build_state', UNFINISHED_BUILDS),
  request: oneOf('build_state', UNFINISHED_REQUESTS),
  compile: oneOf('compile_state', UNFINISHED_COMPILES),
  deploy: oneOf('state', UNFINISHED_DEPLOYS),
};

export const finishedRequest = oneOf('build_state', FINISHED_REQUESTS);
