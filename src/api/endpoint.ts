// What an endpoint is: one definition that routes, guards, validates, documents and answers.

import type { ServerResponse } from 'node:http';
import type { JsonSchema } from '../contract/wire.ts';
import type { Access, Caller, Scope } from '../domain/access.ts';
import type { Errors } from '../domain/refusal.ts';
import type { Cidr } from '../domain/webhook/address.ts';
import type { Live } from '../live.ts';
import type { Build, BuildRequest, Commit } from '../store/builds.ts';
import type { Db } from '../store/database/db.ts';
import type { Page } from '../store/database/page.ts';
import { SealedValueError } from '../store/database/vault.ts';
import type { Dependency } from '../store/dependencies.ts';
import type { Deploy, DeployStrategy } from '../store/deploys.ts';
import { type ImageSettings, isImageUsable } from '../store/images.ts';
import type { Delivery, Notification } from '../store/notifications.ts';
import type { Collaborator, Project } from '../store/projects.ts';
import type { Suite, SuiteRule } from '../store/suites.ts';
import type { Fields, Values } from './fields.ts';

/** What endpoints are handed by the composition root. */
export type Services = {
  db: Db;
  live: Live;
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
  dockerAway: string | undefined;
  image: string;
};

/** The rows that the path names, each found and seen by the caller before the handler runs. */
export type Resources = {
  project: Project;
  collaborator: Collaborator;
  buildRequest: BuildRequest;
  commit: Commit;
  build: Build;
  suite: Suite;
  rule: SuiteRule;
  variable: { id: bigint; name: string };
  suiteDependency: Dependency;
  dependency: Dependency;
  strategy: DeployStrategy;
  deploy: Deploy;
  notification: Notification;
  delivery: Delivery;
};

export type Call<F extends Fields = Fields, Q extends Fields = Fields> = Services &
  Resources & {
    caller: Caller;
    values: Values<F>;
    query: Values<Q>;
    request: Request;
    url: URL;
    params: Record<string, string>;
    /** Where a stream writes to, beyond what a Response can say; HTTP/2 has one that is used alike. */
    outgoing: ServerResponse;
    /** Which part of a list is asked for. */
    page: Page;
  };

/** What is answered: a record in the envelope, a list of them, or something that is no JSON. */
export type Answer =
  | { record: JsonSchema; status?: 200 | 201 | 202 }
  | { list: JsonSchema; paged?: boolean }
  | { media: string; description: string; ranges?: true };

export type Endpoint<F extends Fields = Fields, Q extends Fields = Fields> = {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  summary: string;
  access: Access;
  scope: Scope | undefined;
  /** Whether an account that owes payment may still do it to what it owns. */
  unpaid?: (url: URL) => boolean;
  fields?: F;
  query?: Q;
  /** A body that is no form: the endpoint reads it itself. */
  binary?: { description: string };
  /** Checks beyond single fields: uniqueness, fields that must fit each other. Gets what was valid, and what was not. */
  also?: (values: Partial<Values<F>>, call: Omit<Call, 'values'>, wrong: Readonly<Errors>) => Errors;
  /** Fields that name other records: those that are not there are 404, once all fields are valid. */
  named?: (values: Values<F>, call: Omit<Call, 'values'>) => string[];
  answer: Answer;
  /** An answer that is not a Response is put into the envelope. */
  handle(call: Call<F, Q>): unknown;
};

/** Gives the handler the types of its own fields, and the table one common type. */
export function endpoint<F extends Fields = Record<never, never>, Q extends Fields = Record<never, never>>(
  definition: Endpoint<F, Q>,
): Endpoint {
  return definition as unknown as Endpoint;
}

/** A page of a list; the router adds the link to the next one. */
export class Listing {
  readonly items: unknown[];
  readonly next: bigint | undefined;
  /** Why records that were damaged are not among the items: for the log. */
  readonly leftOut: readonly SealedValueError[];

  constructor(items: unknown[], next: bigint | undefined, leftOut: readonly SealedValueError[] = []) {
    this.items = items;
    this.next = next;
    this.leftOut = leftOut;
  }
}

/** Rows as the store gives them, one more than the page holds where there is a next one. */
export function listing<Row extends { id: bigint }>(
  page: Page,
  rows: readonly Row[],
  present: (row: Row) => unknown,
): Listing {
  const shown = rows.slice(0, page.limit);
  const leftOut: SealedValueError[] = [];
  const items = shown.flatMap(row => {
    try {
      return [present(row)];
    } catch (cause) {
      // What was changed in the database answers 500 by itself; a list shows the others.
      if (!(cause instanceof SealedValueError)) throw cause;
      leftOut.push(cause);
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
