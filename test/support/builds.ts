import { type Build, listPageOfRequest } from '../../src/store/builds.ts';
import type { Db } from '../../src/store/database/db.ts';

/** All builds of a request, newest first. */
export const listBuildsOfRequest = (db: Db, requestId: bigint): Build[] =>
  listPageOfRequest(db, requestId, { limit: 100_000, before: undefined });
