// The firewall rules of the instance's bridge. A small container that may set rules, the guard, checks them on request and
// restores missing ones, so that the server need not be root. The guard ends with its connection.
import { createInterface } from 'node:readline';
import { type Duplex, PassThrough } from 'node:stream';
import { EngineRefused, GUARD_KIND, type PreparedImage } from '../engine.ts';
import { type DockerContainer, unlessRefused } from './client.ts';
import { createContainer, type EngineContext, nameInternalContainer } from './create-container.ts';
import { RULE_FUNCTIONS } from './rule-functions.ts';

type Firewall = {
  /** Resolves when the rules are active. Throws EngineRefused if they cannot be set. */
  protect(): Promise<'intact' | 'restored'>;
  /** Removes the rules and the guard. Resolves when both are gone, with the number of rules. */
  removeRules(): Promise<number>;
  close(): void;
};

// $1 is the bridge. Reads one command per line and responds with one line. This runs before every start of a container:
// rules that are the same as in an earlier check that found them intact are not compared again, which takes four times as
// many processes.
const SCRIPT = `${RULE_FUNCTIONS}
bridge=$1
intact=
while read -r command; do
  if ! command -v iptables >/dev/null; then
    echo missing
  elif [ "$command" = remove ]; then
    echo $(delete "$bridge" 2>/dev/null | wc -l)
  elif [ "$command" = protect ]; then
    # Once per guard: delete rules that earlier servers left for removed bridges.
    [ "$swept" ] || delete '' >/dev/null 2>&1
    swept=yes
    before=$(list)
    if [ "$before" ] && [ "$before" = "$intact" ]; then
      echo intact
      continue
    fi
    result=$(protect 2>&1)
    [ "$result" = intact ] && [ "$(list)" = "$before" ] && intact=$before
    case $result in intact | restored) echo $result ;; *) echo failed $result ;; esac
  fi
done
`;

const RESPONSE_MS = 20_000;
const MEMORY_BYTES = 64 * 1024 ** 2;

type Guard = {
  send(command: 'protect' | 'remove'): Promise<string>;
  close(): void;
  /** Closes it, and resolves when Docker has removed its container. */
  remove(): Promise<void>;
};

/** The guard ended. Another one can be started. */
class GuardEnded extends Error {
  override name = 'GuardEnded';
}

export function createFirewall(
  context: EngineContext,
  bridge: string,
  hostImage: () => Promise<PreparedImage>,
): Firewall {
  let current: Promise<Guard> | undefined;

  const release = (guard: Promise<Guard>) => {
    if (current === guard) current = undefined;
    guard.then(
      started => started.close(),
      () => {},
    );
  };

  async function send(command: 'protect' | 'remove'): Promise<string> {
    for (let retriesLeft = 1; ; retriesLeft--) {
      current ??= startGuard(context, bridge, hostImage);
      const guard = current;
      try {
        return await (await guard).send(command);
      } catch (error) {
        release(guard);
        if (retriesLeft === 0 || !(error instanceof GuardEnded)) throw error;
      }
    }
  }

  return {
    async protect() {
      const response = await send('protect');
      if (response === 'intact' || response === 'restored') return response;
      throw new EngineRefused(
        response === 'missing'
          ? 'The host has no iptables, which is needed to block containers from its ports: install it, or set NETWORK to none or to your own network.'
          : `The firewall rules that block containers from the host's ports could not be set: ${response.slice('failed'.length).trim().slice(0, 400)}. Check that iptables works on the host; a restart of Docker sets its own rules again.`,
      );
    },
    async removeRules() {
      // A host without iptables has no rules either.
      const rules = Number(await send('remove')) || 0;
      const guard = current;
      current = undefined;
      await (await guard)?.remove();
      return rules;
    },
    close() {
      if (current) release(current);
    },
  };
}

async function startGuard(
  context: EngineContext,
  bridge: string,
  hostImage: () => Promise<PreparedImage>,
): Promise<Guard> {
  const { call, internalContainers } = context;
  const { reference: image, mounts } = await hostImage();
  const { name, owner } = nameInternalContainer(context, GUARD_KIND);
  internalContainers.add(name);
  let container: DockerContainer | undefined;
  try {
    container = await createContainer(
      context,
      { name, owner, image, mounts, command: ['/bin/sh', '-c', SCRIPT, 'assay-guard', bridge] },
      {
        User: '0:0',
        // Its input is this connection. When the connection ends, the script ends and Docker removes the container.
        OpenStdin: true,
        StdinOnce: true,
        HostConfig: {
          AutoRemove: true,
          NetworkMode: 'host',
          // With user namespaces, only containers outside of them may use the host's network.
          UsernsMode: 'host',
          ReadonlyRootfs: true,
          CapAdd: ['NET_ADMIN', 'NET_RAW'],
          Memory: MEMORY_BYTES,
          MemorySwap: MEMORY_BYTES,
          PidsLimit: 32,
        },
      },
    );
    const created = container;
    const stream = (await call('attach to a container', () =>
      created.attach({ stream: true, stdin: true, stdout: true, stderr: true, hijack: true }),
    )) as Duplex;
    const guard = connectGuard(context, created, stream, () => internalContainers.delete(name));
    await call('start a container', () => created.start()).catch(error => {
      guard.close();
      throw error;
    });
    return guard;
  } catch (error) {
    // Docker does not remove a container that never ran. If this fails, the sweep removes it.
    await call('remove a container', async () => container?.remove({ force: true })).catch(() => {});
    internalContainers.delete(name);
    throw error;
  }
}

/** Responses arrive in the order of the commands. */
function connectGuard(
  { call }: EngineContext,
  container: DockerContainer,
  stream: Duplex,
  onEnd: () => void,
): Guard {
  const waiting: { resolve(line: string): void; reject(error: Error): void }[] = [];
  let isOpen = true;
  const output = new PassThrough();
  const ignored = new PassThrough().resume();
  container.modem.demuxStream(stream, output, ignored);
  createInterface({ input: output }).on('line', line => waiting.shift()?.resolve(line));
  const end = () => {
    isOpen = false;
    onEnd();
    for (const { reject } of waiting.splice(0)) reject(new GuardEnded('The guard of the firewall ended.'));
  };
  for (const event of ['end', 'close', 'error']) stream.on(event, end);
  return {
    send: command =>
      call(
        'check firewall rules',
        () =>
          new Promise<string>((resolve, reject) => {
            if (!isOpen) return reject(new GuardEnded('The guard of the firewall ended.'));
            waiting.push({ resolve, reject });
            stream.write(`${command}\n`);
          }),
        { deadlineMs: RESPONSE_MS },
      ),
    close: () => stream.destroy(),
    async remove() {
      stream.destroy();
      // Docker removes it by itself when the script has ended, but a busy engine may take long to notice that.
      await unlessRefused([404, 409], () =>
        call('remove a container', () => container.remove({ force: true })),
      );
      await unlessRefused([404], () =>
        call('wait for the end of a container', () => container.wait({ condition: 'removed' })),
      );
    },
  };
}
