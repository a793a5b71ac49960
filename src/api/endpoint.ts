// An endpoint: one definition that routes, guards, validates, documents and answers.

import type { ServerResponse } from 'node:http';
import type { StreamEvents } from '../contract/events.ts';
import type { JsonSchema } from '../contract/wire.ts';
import type { Access, Caller, Scope } from '../domain/access.ts';
import type { Errors } from '../domain/refusal.ts';
import type { Cidr } from '../domain/webhook/address.ts';
import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import type { Build } from '../store/builds.ts';
import type { Db } from '../store/database/db.ts';
import type { Page } from '../store/database/page.ts';
import { SealedValueError } from '../store/database/vault.ts';
import { type ImageSettings, isImageUsable } from '../store/images.ts';
import { type Fields, pageFields, type Values } from './fields.ts';
import { type FindResources, type ParamsIn, type ResourcesIn, resourcesOf } from './guard.ts';
import type { LogFeeds } from './log-feed.ts';
import type { Metrics } from './metrics.ts';

/** What endpoints get from the composition root. */
export type Services = {
  db: Db;
  live: Live;
  log: Log;
  metrics: Metrics;
  /** Growing logs, each read once for all who follow it. */
  feeds: LogFeeds;
  baseUrl: string;
  version: string;
  /** DATA: logs and archives are files in it. */
  dataDirectory: string;
  /** Whether there is room for more work (MIN_FREE_DISK). */
  hasFreeSpace(): boolean;
  /** Which images suites and dependencies may name. */
  imageSettings: ImageSettings;
  /** Addresses that webhooks may reach although they are loopback or the like. */
  webhookAllow: readonly Cidr[];
  /** Proxies that are believed when they report whom they were called by. */
  trustedProxies: readonly Cidr[];
  /** Why a build waits, and in which place; undefined when it does not. */
  waiting(build: Build): { position: number; reason: string } | undefined;
  /** Why what waits for a container does not start yet. */
  waitReason(): string;
  /** Lines for /metrics and facts for /healthz that only the running parts know. */
  vitals(): Vitals;
};

export type Vitals = {
  healthy: boolean;
  slotsUsed: number;
  slots: number;
  freeDiskBytes: number;
  minFreeDiskBytes: number;
  /** CACHE_LIMIT and CACHE_TOTAL; 0 is no limit. */
  cacheLimitBytes: number;
  cacheTotalBytes: number;
  /** Why Docker cannot be used; undefined when it can. */
  dockerUnavailable: string | undefined;
  image: string;
};

/** The caller and the rows that the path names, which the caller may see; nothing where no credentials are needed. */
type Admitted<Path extends string, A extends Access> = A extends 'anyone' | 'administrators'
  ? unknown
  : { caller: Caller } & ResourcesIn<Path>;

/** What a handler gets. Asking for a row that the path does not name is an error of the compiler. */
export type Call<
  Path extends string = '',
  A extends Access = 'signed in',
  V = Values<Fields>,
  Q extends Fields = Fields,
> = Services &
  Admitted<Path, A> & {
    values: V;
    query: Values<Q>;
    request: Request;
    url: URL;
    params: Readonly<Record<ParamsIn<Path>, string>>;
    /** What a stream writes to; HTTP/2 has one that is used alike. */
    outgoing: ServerResponse;
    /** Which part of a list is asked for. */
    page: Page;
  };

type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** The values of a body. PUT changes the fields that are sent, and no others. */
type Sent<M extends Method, F extends Fields> = M extends 'PUT' ? Partial<Values<F>> : Values<F>;

/** What is answered: a record in the envelope, a list of them, or something that is no JSON. */
export type ResponseSpec =
  | { record: JsonSchema; status?: 200 | 201 | 202 }
  | { list: JsonSchema; paged?: boolean }
  | { media: string; description: string; ranges?: true; events?: StreamEvents };

type Definition<
  M extends Method,
  Path extends string,
  A extends Access,
  F extends Fields,
  Q extends Fields,
  Result,
> = {
  method: M;
  path: Path;
  summary: string;
  access: A;
  scope: Scope | undefined;
  /** Whether an account that owes payment may still do it to what it owns. */
  allowUnpaid?(url: URL): boolean;
  fields?: F;
  query?: Q;
  /** A body that is no form: the endpoint reads it itself. */
  binary?: { description: string };
  /** Checks beyond single fields: uniqueness, fields that must fit each other. Gets what is valid, and what is not. */
  checkTogether?(
    values: Partial<Values<F>>,
    call: Call<Path, A, Sent<M, F>, Q>,
    wrong: Readonly<Errors>,
  ): Errors;
  /** Fields that name other records: those that do not exist are 404, once all fields are valid. */
  findMissing?(values: Sent<M, F>, call: Call<Path, A, Sent<M, F>, Q>): string[];
  response: ResponseSpec;
  /** A result that is not a Response is put into the envelope. */
  handle(call: Call<Path, A, Sent<M, F>, Q>): Result;
};

/** An endpoint of the table, with what is derived from its definition once. */
export type Endpoint<Result = unknown> = Definition<Method, string, Access, Fields, Fields, Result> & {
  findResources: FindResources<string>;
  /** Those of a page included. */
  queryFields: Fields;
  needsQuery: boolean;
};

export function endpoint<
  M extends Method,
  Path extends string,
  A extends Access,
  Result,
  F extends Fields = Record<never, never>,
  Q extends Fields = Record<never, never>,
>(definition: Definition<M, Path, A, F, Q, Result>): Endpoint<Result> {
  const { path, response, query } = definition;
  const queryFields: Fields = {
    ...('list' in response && response.paged !== false && pageFields),
    ...query,
  };
  return {
    ...definition,
    findResources: resourcesOf(path),
    queryFields,
    needsQuery: Object.values(queryFields).some(field => field.required),
  };
}

/** A page of a list; the router adds the link to the next one. */
export class Listing<Item = unknown> {
  readonly items: Item[];
  readonly next: bigint | undefined;
  /** Why records that were damaged are not among the items: for the log. */
  readonly leftOut: readonly SealedValueError[];

  constructor(items: Item[], next: bigint | undefined, leftOut: readonly SealedValueError[] = []) {
    this.items = items;
    this.next = next;
    this.leftOut = leftOut;
  }
}

/** Rows as the store gives them, one more than the page holds where there is a next one. */
export function listing<Row extends { id: bigint }, Item>(
  page: Page,
  rows: readonly Row[],
  present: (row: Row) => Item,
): Listing<Item> {
  const shown = rows.slice(0, page.limit);
  const leftOut: SealedValueError[] = [];
  const items = shown.flatMap(row => {
    try {
      return [present(row)];
    } catch (error) {
      // What was changed in the database answers 500 by itself; a list shows the others.
      if (!(error instanceof SealedValueError)) throw error;
      leftOut.push(error);
      return [];
    }
  });
  return new Listing(items, rows.length > page.limit ? shown.at(-1)?.id : undefined, leftOut);
}

/** For `named`: a suite or a dependency can only run in an image that may be used. */
export const findMissingImage = (
  { image }: { image?: string | undefined },
  { db, imageSettings }: Pick<Services, 'db' | 'imageSettings'>,
): string[] => (!image || isImageUsable(db, imageSettings, image) ? [] : ['image']);
