// The definition of an endpoint: the router, the validation and the API reference all read it.

import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { StreamEvents } from '../contract/events.ts';
import type { JsonSchema } from '../contract/wire.ts';
import type { Access, Caller, Scope } from '../domain/access.ts';
import type { ArtifactEntry } from '../domain/artifact-entry.ts';
import type { EngineNode } from '../domain/node.ts';
import type { Errors } from '../domain/refusal.ts';
import type { BuildDiff } from '../domain/result/build-diff.ts';
import type { Cidr } from '../domain/webhook/address.ts';
import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import type { Build } from '../store/builds.ts';
import type { ArtifactIndex } from '../store/data/artifact-index.ts';
import type { Db } from '../store/database/db.ts';
import type { Page } from '../store/database/page.ts';
import { SealedValueError } from '../store/database/vault.ts';
import type { Dependency } from '../store/dependencies.ts';
import { type ImageSettings, isImageUsable } from '../store/images.ts';
import type { Project } from '../store/projects.ts';
import type { BuildArtifact } from '../store/result/build-artifacts.ts';
import type { LogSearch } from '../store/result/search-builds.ts';
import type { Snapshot } from '../store/snapshots.ts';
import { type Fields, pageFields, type Values } from './fields.ts';
import type { ByteRange } from './http/range.ts';
import type { Target } from './http/respond.ts';
import type { LogFeeds } from './log-feed.ts';
import type { Metrics } from './metrics.ts';
import { type FindResources, type ParamsIn, type ResourcesIn, resourcesOf } from './resources.ts';

/** What src/app.ts passes to every endpoint. */
export type Services = {
  db: Db;
  live: Live;
  log: Log;
  metrics: Metrics;
  feeds: LogFeeds;
  logSearch: LogSearch;
  baseUrl: string;
  /** The setting FILES_URL: where artifacts are opened; undefined if on the server's own address. */
  filesUrl: string | undefined;
  version: string;
  /** SHA-256 of the authority of the server's certificate. */
  authorityFingerprint: string;
  /** The setting DATA: contains logs and archives. */
  dataDirectory: string;
  /** The setting ARTIFACT_DAYS. */
  artifactsMs: number;
  /** The setting RETENTION_DAYS: how long logs are kept. */
  logsMs: number;
  /** Reads the content, or a range of it, of an entry in the ZIP file of a build. */
  openArtifact(file: string, entry: BuildArtifact, range?: ByteRange): Readable;
  artifactFiles: {
    /** Lists an artifact of a dependency. Undefined while the index of a large one is being made. */
    openIndex(hash: string): Promise<ArtifactIndex | undefined>;
    /** The content of a file in it, or a range of that. */
    openFile(hash: string, entry: ArtifactEntry, range?: ByteRange): Readable;
    /** All of it, as a plain tar. */
    openTar(artifact: { hash: string; prefix: string }): Readable;
  };
  snapshots: {
    /** Whether the project's mirror has the commit. */
    hasCommit(projectId: bigint, hash: string): Promise<boolean>;
    /** Verifies and unpacks a bundle. Throws a refusal if it cannot be used. */
    create(
      project: Project,
      accountId: bigint,
      bundle: { path: string; sizeBytes: number },
    ): Promise<Snapshot>;
  };
  /** Whether there is enough free disk space for more work (MIN_FREE_DISK). */
  hasFreeSpace(): boolean;
  /** Which images suites and dependencies may name. */
  imageSettings: ImageSettings;
  /** Loopback and other forbidden addresses that webhooks may reach anyway. */
  webhookAllow: readonly Cidr[];
  /** Proxies whose forwarding headers are trusted. */
  trustedProxies: readonly Cidr[];
  /** Why a build waits, and its position in the queue; undefined if it does not wait. */
  waiting(build: Build): { position: number; reason: string } | undefined;
  /** The same of a compile. */
  waitingCompile(dependency: Dependency): { position: number; reason: string } | undefined;
  /** What differs from another build; undefined if there is none to compare with. `isBrief` leaves out the log. */
  compareBuilds(
    build: Build,
    options?: { against?: Build | undefined; isBrief?: boolean },
  ): Promise<BuildDiff<Build> | undefined>;
  /** The state of the running server, for /metrics, /healthz and pages. */
  vitals(): Vitals;
};

type Vitals = {
  healthy: boolean;
  slotsUsed: number;
  slots: number;
  /** How many of them compiles may take (COMPILE_SLOTS), and take. */
  compileSlots: number;
  compilesRunning: number;
  freeDiskBytes: number;
  minFreeDiskBytes: number;
  /** CACHE_LIMIT and CACHE_TOTAL; 0 means no limit. */
  cacheLimitBytes: number;
  cacheTotalBytes: number;
  /** Why Docker is unavailable; undefined if it is available. */
  dockerUnavailable: string | undefined;
  image: string;
  /** The machines that run containers; undefined if there is only this one. */
  nodes: readonly EngineNode[] | undefined;
};

/** The caller and the rows that the path names. Empty if the endpoint needs no credentials. */
type Admitted<Path extends string, A extends Access> = A extends 'anyone' | 'signature' | 'administrators'
  ? unknown
  : { caller: Caller } & ResourcesIn<Path>;

/** What a handler gets. A row that the path does not name is a type error. */
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
    /** For an endpoint that reads its body itself: the body as it arrives. */
    body: AsyncIterable<Uint8Array>;
    url: Target;
    params: Readonly<Record<ParamsIn<Path>, string>>;
    /** For streams. With HTTP/2 it is a compatible object. */
    outgoing: ServerResponse;
    /** The requested page of a list. */
    page: Page;
  };

type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** The values of a body. PUT changes only the fields that are sent. */
type BodyValues<M extends Method, F extends Fields> = M extends 'PUT' ? Partial<Values<F>> : Values<F>;

/** A successful response: a record or a list in the envelope, or another media type. */
export type ResponseSpec =
  | { record: JsonSchema; status?: 200 | 201 | 202 }
  /** `created` says when the status is 201 instead of 200. */
  | { list: JsonSchema; paged?: boolean; created?: string }
  /** `orMedia` is the type that some requests get instead. */
  | {
      media: string;
      orMedia?: string;
      description: string;
      ranges?: true;
      conditional?: true;
      events?: StreamEvents;
    };

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
  /** Whether an account that owes payment may still call it for what it owns. */
  allowUnpaid?(url: Target): boolean;
  fields?: F;
  query?: Q;
  /** A body that the handler reads itself, by media type. `example` is what curl needs to send one. */
  body?: { description: string; optional?: true; content: Record<string, JsonSchema>; example: string };
  /** Checks beyond single fields: uniqueness, and fields that depend on each other. Gets valid values, and the errors. */
  checkTogether?(
    values: Partial<Values<F>>,
    call: Call<Path, A, BodyValues<M, F>, Q>,
    errors: Readonly<Errors>,
  ): Errors;
  /** The fields whose records do not exist. Called when all fields are valid; responds 404. */
  findMissing?(values: BodyValues<M, F>, call: Call<Path, A, BodyValues<M, F>, Q>): string[];
  response: ResponseSpec;
  /** A result that is not a Response is wrapped in the envelope. */
  handle(call: Call<Path, A, BodyValues<M, F>, Q>): Result;
};

/** A definition, with what is derived from it once. */
export type Endpoint<Result = unknown> = Definition<Method, string, Access, Fields, Fields, Result> & {
  findResources: FindResources<string>;
  /** Includes those for paging. */
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

/** A page of a list. The router adds the link to the next page. */
export class Listing<Item = unknown> {
  readonly items: Item[];
  readonly next: bigint | undefined;
  /** The errors of records that could not be read, for the log. */
  readonly unreadable: readonly SealedValueError[];
  /** The parameter that gets `next` on the next page. */
  readonly by: 'before' | 'after';

  constructor(
    items: Item[],
    next: bigint | undefined,
    unreadable: readonly SealedValueError[] = [],
    by: 'before' | 'after' = 'before',
  ) {
    this.items = items;
    this.next = next;
    this.unreadable = unreadable;
    this.by = by;
  }
}

/** A longer list is presented in parts of this length. */
const PART_ROWS = 250;

/**
 * `rows` has one more row than the page if there is a next page. A list of a thousand rows takes a while to present, so
 * other calls run between its parts.
 */
export function listing<Row extends { id: bigint }, Item>(
  page: Page,
  rows: readonly Row[],
  present: (row: Row) => Item,
): Listing<Item> | Promise<Listing<Item>> {
  const shown = rows.slice(0, page.limit);
  const items: Item[] = [];
  const unreadable: SealedValueError[] = [];
  const presentPart = (from: number) => {
    for (const row of shown.slice(from, from + PART_ROWS))
      try {
        items.push(present(row));
      } catch (error) {
        // Requesting this record alone responds 500. A list still shows the others.
        if (!(error instanceof SealedValueError)) throw error;
        unreadable.push(error);
      }
  };
  const finish = () =>
    new Listing(items, rows.length > page.limit ? shown.at(-1)?.id : undefined, unreadable);

  if (shown.length <= PART_ROWS) {
    presentPart(0);
    return finish();
  }
  return (async () => {
    for (let from = 0; from < shown.length; from += PART_ROWS) {
      await nextTurn();
      presentPart(from);
    }
    return finish();
  })();
}

/** For `findMissing`: whether a suite or a dependency may use the image. */
export const findMissingImage = (
  { image }: { image?: string | undefined },
  { db, imageSettings }: Pick<Services, 'db' | 'imageSettings'>,
): string[] => (!image || isImageUsable(db, imageSettings, image) ? [] : ['image']);
