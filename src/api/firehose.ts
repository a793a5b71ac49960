// Firehoses: streams of server-sent events for projects, builds and dependencies. The pages use the same streams.

import { logStreamEvents, projectStreamEvents } from '../contract/events.ts';
import { buildShape } from '../contract/records/build.ts';
import { dependencyShape } from '../contract/records/dependency.ts';
import { admit, type Caller, type Scope } from '../domain/access.ts';
import { isFinishedBuild } from '../domain/build.ts';
import { parseId } from '../domain/id.ts';
import { Refusal } from '../domain/refusal.ts';
import { findBuild } from '../store/builds.ts';
import { buildLogPath, dependencyLogPath } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import { findDependency } from '../store/dependencies.ts';
import { lastEventId, listEvents } from '../store/events.ts';
import { findProject, findVisibleProject, type Project, projectRecord } from '../store/projects.ts';
import { authenticate } from './authenticate.ts';
import { buildRecord } from './builds.ts';
import { present as presentDependency, requireOwner } from './dependencies.ts';
import { type Call, endpoint, type Services } from './endpoint.ts';
import type { Target } from './http/respond.ts';
import { type EventStream, frame, openStream, streamResponse } from './http/stream.ts';
import type { LogReader } from './log-feed.ts';

/** Small, because each event may be large and is sent before the next. */
const EVENT_BATCH = 20;

/** A build or dependency whose state and log a stream sends. */
export type LogSource = {
  /**
   * Undefined when it was deleted. A `state` event is due whenever `version` changes. With `waits`, the log is still that
   * of an earlier run.
   */
  read(): { record: unknown; version: string; waits: boolean; finished: boolean } | undefined;
  /** Where changes of its state are published. */
  topic: string;
  logPath: string;
};

export function followBuild(
  call: Pick<Services, 'db' | 'dataDirectory' | 'waiting'>,
  projectId: bigint,
  id: bigint,
): LogSource {
  return {
    read: () => {
      const build = findBuild(call.db, projectId, id);
      return (
        build && {
          record: buildRecord(call, build),
          version: `${build.buildState} ${build.node}`,
          // Each build has its own log. A retried build has log text while it waits.
          waits: false,
          finished: isFinishedBuild(build.buildState),
        }
      );
    },
    topic: `build:${id}`,
    logPath: buildLogPath(call.dataDirectory, id),
  };
}

export function followDependency(
  call: Pick<Services, 'db' | 'dataDirectory' | 'waitingCompile'>,
  id: bigint,
): LogSource {
  return {
    read: () => {
      const dependency = findDependency(call.db, id);
      return (
        dependency && {
          record: presentDependency(call, dependency),
          version: dependency.compileState,
          // A reader that connects before the upload gets the compile from its beginning.
          waits: ['waiting_archive_upload', 'enqueued_for_compile'].includes(dependency.compileState),
          finished: ['compiled', 'compile_failed'].includes(dependency.compileState),
        }
      );
    },
    topic: `dependency:${id}`,
    logPath: dependencyLogPath(call.dataDirectory, id),
  };
}

/** Sends `state` and `log` events, then `end`, and closes the stream. */
export function streamLog(
  { live, feeds }: Pick<Services, 'live' | 'feeds'>,
  stream: EventStream,
  source: LogSource,
  from: number,
): void {
  let sentVersion: string | undefined;
  let ending = false;
  let reader: LogReader | undefined;
  const follow = () => {
    reader ??= feeds.follow(source.logPath, `log:${source.topic}`, stream, from);
    return reader;
  };
  const update = () => {
    if (ending) return;
    const now = source.read();
    if (!now) {
      ending = true;
      stream.end();
    } else if (now.finished) {
      ending = true;
      if (sentVersion === undefined) stream.send(frame('state', JSON.stringify(now.record)));
      feeds.flush(follow()).then(() => {
        // The reader has left, or the server stops: its database may be closed.
        if (!stream.open) return;
        stream.send(frame('end', JSON.stringify(source.read()?.record ?? now.record)));
        stream.end();
      });
    } else if (now.version !== sentVersion) {
      sentVersion = now.version;
      stream.send(frame('state', JSON.stringify(now.record)));
      if (!now.waits) follow();
    }
  };
  stream.onClose(live.watch(source.topic, update));
  update();
}

/** Sends the project's record, then each event after `after`, with its stored body by default. Stays open. */
export function streamEvents(
  { db, live }: Pick<Services, 'db' | 'live'>,
  stream: EventStream,
  projectId: bigint,
  ownRecord: () => unknown,
  after: bigint | undefined,
  dataOf = ({ body }: { body: string }) => body,
): void {
  let last = after ?? lastEventId(db, projectId);
  let sending = false;
  stream.send(frame('state', JSON.stringify(ownRecord())));
  const send = async () => {
    if (sending) return;
    sending = true;
    for (;;) {
      if (!stream.open) break;
      if (!findProject(db, projectId)) {
        stream.end();
        break;
      }
      const events = listEvents(db, projectId, last, EVENT_BATCH);
      if (events.length === 0) break;
      for (const event of events) {
        stream.send(frame(event.type, dataOf(event), event.id.toString()));
        last = event.id;
        await stream.drained();
        if (!stream.open) break;
      }
    }
    sending = false;
  };
  stream.onClose(live.watch(`events:${projectId}`, send));
  stream.onClose(live.watch(`project:${projectId}`, send));
  send();
}

export function lastEventIdHeader(request: Request): string {
  return request.headers.get('last-event-id') ?? '';
}

/** The byte of the log at which a reader resumes. */
export function resumeOffset(lastEventId: string): number {
  return /^\d{1,15}$/.test(lastEventId) ? Number(lastEventId) : 0;
}

export const firehoses = {
  project: endpoint({
    method: 'GET',
    path: '/projects/:project_id/firehose',
    summary:
      "Streams the project's events as they happen; `event` is the type, `data` the body that webhooks get",
    access: 'sees',
    scope: 'commits',
    response: {
      media: 'text/event-stream',
      description: 'The project, then its events as they happen. The stream stays open.',
      events: projectStreamEvents,
    },
    handle: call => {
      const { db, project, caller } = call;
      streamEvents(
        call,
        beginForProject(call),
        project.id,
        () => projectRecord(db, findProject(db, project.id) ?? project, caller.accountId),
        parseId(lastEventIdHeader(call.request)),
      );
      return streamResponse();
    },
  }),
  build: endpoint({
    method: 'GET',
    path: '/projects/:project_id/builds/:build_id/firehose',
    summary: "Streams a build's state and log as they change",
    access: 'sees',
    scope: 'commits',
    response: {
      media: 'text/event-stream',
      description: '`state`, `log` and `end` events.',
      events: logStreamEvents(buildShape),
    },
    handle: call => {
      const { project, build } = call;
      streamLog(
        call,
        beginForProject(call),
        followBuild(call, project.id, build.id),
        resumeOffset(lastEventIdHeader(call.request)),
      );
      return streamResponse();
    },
  }),
  dependency: endpoint({
    method: 'GET',
    path: '/dependencies/:dependency_id/firehose',
    summary: "Streams a compile's state and log as they change",
    access: 'sees',
    scope: 'dependencies',
    response: {
      media: 'text/event-stream',
      description: '`state`, `log` and `end` events.',
      events: logStreamEvents(dependencyShape),
    },
    handle: call => {
      const { db, dependency } = call;
      requireOwner(call);
      streamLog(
        call,
        begin(call, 'dependencies', () => findDependency(db, dependency.id)),
        followDependency(call, dependency.id),
        resumeOffset(lastEventIdHeader(call.request)),
      );
      return streamResponse();
    },
  }),
};

const beginForProject = (call: Call & { project: Project }): EventStream =>
  begin(call, 'commits', caller => findVisibleProject(call.db, caller.accountId, call.project.id));

/** Opens a stream that ends when the caller loses its credentials, its standing or access to the resource. */
function begin(call: Call, scope: Scope, canSee: (caller: Caller) => unknown): EventStream {
  const isAllowed = () => isStillAllowed(call.db, call.request, call.url, scope, canSee);
  const stream = openStream(call.outgoing, isAllowed);
  const recheck = () => {
    if (!isAllowed()) stream.end();
  };
  stream.onClose(call.live.watch(`account:${call.caller.accountId}`, recheck));
  stream.onClose(call.live.watch('tokens', recheck));
  if (call.request.method === 'HEAD') stream.end();
  return stream;
}

function isStillAllowed(
  db: Db,
  request: Request,
  url: Target,
  scope: Scope,
  canSee: (caller: Caller) => unknown,
): boolean {
  try {
    const caller = authenticate(db, request, url);
    admit(caller, scope);
    return Boolean(canSee(caller));
  } catch (error) {
    if (error instanceof Refusal) return false;
    throw error;
  }
}
