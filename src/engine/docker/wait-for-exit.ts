// Waits for the end of containers. A wait of Docker may hang although its connection is open, for example after a restart of
// the engine. So it is renewed from time to time, and the state of the container decides.
import { type ContainerState, EngineUnavailable } from '../engine.ts';
import { type DockerContainer, isRefused, unlessRefused } from './client.ts';
import type { EngineContext } from './create-container.ts';

const WATCH_INTERVAL_MS = 15_000;

type DockerState = {
  Running: boolean;
  Status: string;
  ExitCode: number;
  OOMKilled: boolean;
  StartedAt: string;
};

/** Returns undefined if the container is gone. */
export async function waitForExit(
  context: EngineContext,
  container: string,
  signal?: AbortSignal,
): Promise<ContainerState | undefined> {
  const { call, watchIntervalMs = WATCH_INTERVAL_MS } = context;
  for (;;) {
    signal?.throwIfAborted();
    try {
      await call('wait for a container', docker => docker.getContainer(container).wait(), {
        deadlineMs: watchIntervalMs,
        signal,
      });
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (!(error instanceof EngineUnavailable) && !isRefused(error, 404)) throw error;
    }
    const state = await inspectContainer(context, container);
    if (!state?.running) return state;
  }
}

/** Starts an internal container and returns its exit code. */
export async function runToExit(
  context: EngineContext,
  container: DockerContainer,
  { action, deadlineMs }: { action: string; deadlineMs: number },
): Promise<number> {
  await context.call(action, () => container.start());
  const deadline = AbortSignal.timeout(deadlineMs);
  const tooLate = () => new EngineUnavailable(`A container did not end in time (${action}).`);
  const state = await waitForExit(context, container.id, deadline).catch(error => {
    throw deadline.aborted ? tooLate() : error;
  });
  if (state?.exitCode === undefined) throw new EngineUnavailable(`A container is gone (${action}).`);
  return state.exitCode;
}

/** Returns undefined if the container is gone. */
export async function inspectContainer(
  { call }: EngineContext,
  container: string,
): Promise<ContainerState | undefined> {
  const found = await unlessRefused([404], () =>
    call('inspect a container', docker => docker.getContainer(container).inspect()),
  );
  return found && stateOf(found.State);
}

function stateOf(state: DockerState): ContainerState {
  const startedAt = new Date(state.StartedAt);
  return {
    running: state.Running,
    exitCode: state.Running || state.Status === 'created' ? undefined : state.ExitCode,
    oomKilled: state.OOMKilled,
    startedAt: startedAt.getTime() > 0 ? startedAt : undefined,
  };
}
