// Owns the firewall rules of Assay's bridge. The server need not be root: a small container with the capability that it
// takes, the guard, checks the rules whenever it is asked, and sets what is missing. It ends with its connection.

import { randomBytes } from 'node:crypto';
import { createInterface } from 'node:readline';
import { type Duplex, PassThrough } from 'node:stream';
import type { Container } from 'dockerode';
import { labelsOf, type Mount } from '../../domain/container/container-plan.ts';
import { type DockerDoor, EngineRefused, isRefused } from './docker.ts';

export const GUARD_KIND = 'guard';

export type FirewallOptions = {
  instance: string;
  bridge: string;
  /** The image `host` and its mounts: the rules are set with the host's own iptables. */
  hostImage(): Promise<{ reference: string; mounts: Mount[] }>;
};

export type Firewall = {
  /** Resolves when the rules are in force; throws EngineRefused when they cannot be set. */
  protect(): Promise<'intact' | 'restored'>;
  /** Removes the rules and the guard itself, and resolves when both are gone: with how many rules there were. */
  removeRules(): Promise<number>;
  isGuard(containerId: string): boolean;
  close(): void;
};

// $1 is the bridge. Reads orders line by line and answers each with one line. The rules that are there are read with one
// call, since this is done before every start of a container; how they are written is how iptables lists them.
// REJECT, so that a suite is refused at once and does not hang; DROP where the kernel lacks it. The jump to DOCKER-USER is
// Docker's own: Docker evaluates that chain before the rules that accept traffic, but sets the jump only when it starts.
// Rules that are there but stand behind those of others are moved to the top: one that accepts would come before them.
const SCRIPT = `
PATH=/usr/sbin:/sbin:/usr/bin:/bin
bridge=$1
insert() {
  $1 -w 10 -I $2 1 $3 -m comment --comment $bridge -j REJECT 2>/dev/null ||
    $1 -w 10 -I $2 1 $3 -m comment --comment $bridge -j DROP
}
# The rules of the chain $1 that stand before those of others, which may accept what ours refuse.
leading() {
  printf '%s\\n' "$rules" | sed -n "/^-A $1 /{/ --comment assay-/!q;p}"
}
require() {
  for verdict in REJECT DROP; do
    rule="$3 -m comment --comment $bridge -j $verdict"
    case $leading in *"-A $2 $rule"*) return ;; esac
    case $rules in
      *"-A $2 $rule"*) $1 -w 10 -D $2 $rule 2>/dev/null ;;
      *) $1 -w 10 -C $2 $rule 2>/dev/null && return ;;
    esac
  done
  state=restored
  insert "$1" "$2" "$3"
}
protect() {
  state=intact
  forward=FORWARD
  rules=$(iptables -w 10 -S) || return
  case $rules in *'-N DOCKER-USER'*)
    forward=DOCKER-USER
    case \${rules#*-A FORWARD } in
      '-j DOCKER-USER'*) ;;
      *)
        state=restored
        iptables -w 10 -D FORWARD -j DOCKER-USER 2>/dev/null
        iptables -w 10 -I FORWARD 1 -j DOCKER-USER || return
        ;;
    esac
  esac
  leading=$(leading INPUT; leading $forward)
  require iptables INPUT "-i $bridge" &&
    require iptables $forward "-i $bridge -o $bridge" &&
    require iptables $forward "-d 169.254.0.0/16 -i $bridge" &&
    require iptables $forward "-i $bridge -m conntrack --ctstate DNAT" || return
  # Docker switches IPv6 off on the bridge: the rule is for a host that switches it on again.
  if rules=$(ip6tables -w 10 -S INPUT 2>/dev/null); then
    leading=$(leading INPUT)
    require ip6tables INPUT "-i $bridge" 2>/dev/null
  fi
  echo $state
}
# Of the bridge $1; without it, of all bridges that are gone.
delete() {
  for tool in iptables ip6tables; do
    $tool -w 10 -S 2>/dev/null |
      sed -n 's/^-A \\(.* -i \\(assay-[0-9a-f]*\\) .*--comment \\2 .*\\)/\\2 \\1/p' |
      while read -r name rule; do
        if [ "$name" = "$1" ] || { [ -z "$1" ] && [ ! -e "/sys/class/net/$name" ]; }; then
          $tool -w 10 -D $rule && echo deleted
        fi
      done
  done
}
while read -r order; do
  if ! command -v iptables >/dev/null; then
    echo missing
  elif [ "$order" = remove ]; then
    echo $(delete "$bridge" 2>/dev/null | wc -l)
  elif [ "$order" = protect ]; then
    # Once is enough: what is left by then was left by others.
    [ "$swept" ] || delete '' >/dev/null 2>&1
    swept=yes
    words=$(protect 2>&1)
    case $words in intact | restored) echo $words ;; *) echo failed $words ;; esac
  fi
done
`;

const ANSWER_MS = 20_000;
const MEMORY_BYTES = 64 * 1024 ** 2;

type Guard = {
  containerId: string;
  ask(order: 'protect' | 'remove'): Promise<string>;
  close(): void;
  /** Closes it, and resolves when Docker has removed its container. */
  remove(): Promise<void>;
};

/** The guard is no more, for whatever reason: another one can be started. */
class GuardEnded extends Error {
  override name = 'GuardEnded';
}

export function createFirewall(door: DockerDoor, options: FirewallOptions): Firewall {
  let starting: Promise<Guard> | undefined;
  let containerId: string | undefined;

  const release = (guard: Promise<Guard>) => {
    if (starting === guard) starting = undefined;
    guard.then(
      started => started.close(),
      () => {},
    );
  };

  async function ask(order: 'protect' | 'remove'): Promise<string> {
    for (let triesLeft = 1; ; triesLeft--) {
      starting ??= startGuard(door, options);
      const guard = starting;
      try {
        const started = await guard;
        containerId = started.containerId;
        return await started.ask(order);
      } catch (error) {
        release(guard);
        if (triesLeft === 0 || !(error instanceof GuardEnded)) throw error;
      }
    }
  }

  return {
    async protect() {
      const answer = await ask('protect');
      if (answer === 'intact' || answer === 'restored') return answer;
      throw new EngineRefused(
        answer === 'missing'
          ? 'The host has no iptables, without which nothing keeps containers from its ports: install it, or set NETWORK to none or to a network of your own.'
          : `The firewall rules that keep containers from the host's ports could not be set: ${answer.slice('failed'.length).trim().slice(0, 400)}. See whether iptables works on the host; restarting Docker sets its own rules again.`,
        500,
      );
    },
    async removeRules() {
      // A host without iptables has no rules either.
      const rules = Number(await ask('remove')) || 0;
      const guard = starting;
      starting = undefined;
      await (await guard)?.remove();
      return rules;
    },
    isGuard: id => id === containerId,
    close() {
      if (starting) release(starting);
    },
  };
}

async function startGuard({ docker, call }: DockerDoor, options: FirewallOptions): Promise<Guard> {
  const { instance, bridge } = options;
  const { reference, mounts } = await options.hostImage();
  const container = await call('create a container', () =>
    docker.createContainer({
      // Of its own each time: the one before may be about to be removed.
      name: `assay-${instance}-${GUARD_KIND}-${randomBytes(4).toString('hex')}`,
      Image: reference,
      User: '0:0',
      Entrypoint: ['/bin/sh', '-c', SCRIPT, 'assay-guard', bridge],
      Cmd: [],
      Labels: labelsOf({ instance, kind: GUARD_KIND, id: bridge }),
      // Its input is this connection: when that ends, however, the script ends, and Docker removes the container.
      OpenStdin: true,
      StdinOnce: true,
      StopSignal: 'SIGKILL',
      Healthcheck: { Test: ['NONE'] },
      HostConfig: {
        AutoRemove: true,
        NetworkMode: 'host',
        // On an engine with user namespaces the host's network is for those outside of them.
        UsernsMode: 'host',
        ReadonlyRootfs: true,
        CapDrop: ['ALL'],
        CapAdd: ['NET_ADMIN', 'NET_RAW'],
        SecurityOpt: ['no-new-privileges:true'],
        Memory: MEMORY_BYTES,
        MemorySwap: MEMORY_BYTES,
        PidsLimit: 32,
        LogConfig: { Type: 'none', Config: {} },
        Mounts: mounts.map(({ type, source, target, readOnly }) => ({
          Type: type,
          Source: source,
          Target: target,
          ReadOnly: readOnly,
        })),
      },
    }),
  );
  try {
    const stream = (await call('attach to a container', () =>
      container.attach({ stream: true, stdin: true, stdout: true, stderr: true, hijack: true }),
    )) as Duplex;
    const guard = converse(docker, call, container, stream);
    await call('start a container', () => container.start()).catch(error => {
      guard.close();
      throw error;
    });
    return guard;
  } catch (error) {
    // One that never ran is not removed by Docker itself. Where it cannot be removed now, the sweep does it.
    await call('remove a container', () => container.remove({ force: true })).catch(() => {});
    throw error;
  }
}

/** Orders go in and answers come out in the same order. */
function converse(
  docker: DockerDoor['docker'],
  call: DockerDoor['call'],
  container: Container,
  stream: Duplex,
): Guard {
  const waiting: { resolve(answer: string): void; reject(error: Error): void }[] = [];
  let isOpen = true;
  const output = new PassThrough();
  const ignored = new PassThrough().resume();
  docker.modem.demuxStream(stream, output, ignored);
  createInterface({ input: output }).on('line', line => waiting.shift()?.resolve(line));
  const end = () => {
    isOpen = false;
    for (const { reject } of waiting.splice(0)) reject(new GuardEnded('The guard of the firewall ended.'));
  };
  for (const event of ['end', 'close', 'error']) stream.on(event, end);
  return {
    containerId: container.id,
    async ask(order) {
      return await call(
        'check firewall rules',
        () =>
          new Promise<string>((resolve, reject) => {
            if (!isOpen) return reject(new GuardEnded('The guard of the firewall ended.'));
            waiting.push({ resolve, reject });
            stream.write(`${order}\n`);
          }),
        { deadlineMs: ANSWER_MS },
      );
    },
    close: () => stream.destroy(),
    async remove() {
      stream.destroy();
      try {
        await call('wait for the end of a container', () => container.wait({ condition: 'removed' }));
      } catch (error) {
        if (!isRefused(error, 404)) throw error;
      }
    },
  };
}
