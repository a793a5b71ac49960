// The variables of a job, as a secret of the swarm: only the node that runs the job gets it.
import { createHash } from 'node:crypto';
import { labelsOf, type Ownership } from '../../domain/container/container-plan.ts';
import { SERVICE_LABEL } from '../../domain/swarm.ts';
import { unlessRefused } from '../docker/client.ts';
import type { EngineContext } from '../docker/create-container.ts';
import { EngineRefused } from '../engine.ts';

const MAX_SECRET_BYTES = 500 * 1024;

export type SecretReference = { SecretID: string; SecretName: string };

type Secrets = {
  /** The same one twice is one secret. */
  create(service: string, owner: Ownership, variables: string): Promise<SecretReference>;
  /** Removes those of a service, which must be gone. Docker is asked for their IDs if they are not given. */
  remove(service: string, ids?: readonly string[]): Promise<void>;
};

export function createSecrets({ call }: EngineContext): Secrets {
  const list = async (filters: object) =>
    (await call('list secrets', docker =>
      docker.listSecrets({ filters: JSON.stringify(filters) as never }),
    )) as unknown as { ID: string }[];
  return {
    async create(service, owner, variables) {
      if (Buffer.byteLength(variables) > MAX_SECRET_BYTES)
        throw new EngineRefused(
          `The variables exceed ${MAX_SECRET_BYTES} bytes, which is the most that Docker Swarm passes to a container.`,
        );
      const Name = `assay-${createHash('sha256').update(service).digest('hex').slice(0, 40)}`;
      const Labels = { ...labelsOf(owner), [SERVICE_LABEL]: service };
      const created = await unlessRefused([409], () =>
        call('create a secret', async docker =>
          docker.createSecret({ Name, Labels, Data: Buffer.from(variables).toString('base64') }),
        ),
      );
      // 409: the same plan was started before.
      const SecretID = created ? (created as { id: string }).id : (await list({ name: [Name] }))[0]?.ID;
      return { SecretID: SecretID as string, SecretName: Name };
    },
    async remove(service, ids) {
      const found = ids ?? (await list({ label: [`${SERVICE_LABEL}=${service}`] })).map(({ ID }) => ID);
      for (const id of found)
        await unlessRefused([404], () => call('remove a secret', docker => docker.getSecret(id).remove()));
    },
  };
}
