// Projects, their SSH keys and their collaborators.

import { and, desc, eq, getTableColumns, isNull, sql } from 'drizzle-orm';
import { presentProject } from '../contract/records/project.ts';
import { nameKey } from '../domain/names.ts';
import { refusal } from '../domain/refusal.ts';
import { keyComment, withComment } from '../domain/ssh-key.ts';
import type { SubmoduleSetting } from '../domain/submodules.ts';
import { cached, type Db, isUniqueViolation, prepared } from './database/db.ts';
import { limitWithNext, olderThan, type Page } from './database/page.ts';
import { accounts, collaborators, projects } from './database/schema.ts';
import { hostOf } from './database/stored-values.ts';
import { isNameTaken, keyOfChange } from './database/unique-name.ts';

/** Without the private key, which only fetches and pushes need. */
export type Project = Omit<typeof projects.$inferSelect, 'sshPrivateKey'>;

const { sshPrivateKey: _, ...projectFields } = getTableColumns(projects);

const publicKeyCell = (row: bigint) => ({ table: 'projects', column: 'ssh_public_key', row });
const privateKeyCell = (row: bigint) => ({ table: 'projects', column: 'ssh_private_key', row });

const byId = prepared(db =>
  db.orm
    .select(projectFields)
    .from(projects)
    .where(and(eq(projects.id, sql.placeholder('id')), isNull(projects.deletedAt)))
    .prepare(),
);
const collaboration = prepared(db =>
  db.orm
    .select({ id: collaborators.id })
    .from(collaborators)
    .where(
      and(
        eq(collaborators.projectId, sql.placeholder('projectId')),
        eq(collaborators.accountId, sql.placeholder('accountId')),
      ),
    )
    .prepare(),
);

export const findProject = cached(
  (id: bigint) => id,
  (db, id): Project | undefined => byId(db).get({ id }),
);

/** The project, if the account owns it or collaborates on it. */
export function findVisibleProject(db: Db, accountId: bigint, id: bigint): Project | undefined {
  const project = findProject(db, id);
  if (!project || project.ownerId === accountId) return project;
  return collaboration(db).get({ projectId: id, accountId }) && project;
}

function listOwnProjects(db: Db, accountId: bigint, page: Page): Project[] {
  return db.orm
    .select(projectFields)
    .from(projects)
    .where(and(eq(projects.ownerId, accountId), olderThan(projects.id, page), isNull(projects.deletedAt)))
    .orderBy(desc(projects.id))
    .limit(limitWithNext(page))
    .all();
}

export function listCollaboratedProjects(db: Db, accountId: bigint, page: Page): Project[] {
  return db.orm
    .select(projectFields)
    .from(collaborators)
    .innerJoin(projects, eq(projects.id, collaborators.projectId))
    .where(and(eq(collaborators.accountId, accountId), olderThan(collaborators.projectId, page)))
    .orderBy(desc(collaborators.projectId))
    .limit(limitWithNext(page))
    .all();
}

/** Merges two ordered lists, each of which uses an index. */
export function listVisibleProjects(db: Db, accountId: bigint, page: Page): Project[] {
  return [...listOwnProjects(db, accountId, page), ...listCollaboratedProjects(db, accountId, page)]
    .sort((a, b) => (a.id < b.id ? 1 : -1))
    .slice(0, limitWithNext(page));
}

const visibleNames = prepared(({ sqlite }) =>
  sqlite.prepare<[{ accountId: bigint; limit: number }], { id: bigint; name: string }>(
    // Each part is limited, because an account may see many more.
    `SELECT id, name FROM (
       SELECT * FROM (
         SELECT id, name FROM projects WHERE owner_id = @accountId AND deleted_at IS NULL ORDER BY id DESC LIMIT @limit
       )
       UNION ALL
       SELECT * FROM (
         SELECT project.id, project.name
         FROM collaborators CROSS JOIN projects AS project ON project.id = project_id
         WHERE account_id = @accountId AND project.deleted_at IS NULL ORDER BY project_id DESC LIMIT @limit
       )
     ) ORDER BY id DESC LIMIT @limit`,
  ),
);

/** At most how many projects are offered as choices. */
const NAMES_LISTED = 500;
const VIEWERS_CACHED = 20;

/** The newest projects that the account sees, for choices. */
export const listVisibleNames = cached(
  (accountId: bigint) => accountId,
  (db, accountId): readonly { id: bigint; name: string }[] =>
    visibleNames(db).all({ accountId, limit: NAMES_LISTED }),
  VIEWERS_CACHED,
);

export function isProjectNameTaken(db: Db, ownerId: bigint, name: string, own?: Project): boolean {
  return isNameTaken(db, projects, { column: projects.ownerId, id: ownerId }, name, own);
}

export function createProject(
  db: Db,
  project: {
    ownerId: bigint;
    name: string;
    description: string;
    repositoryUrl: string;
    badge: boolean;
    cancelSuperseded: boolean;
    submodules?: SubmoduleSetting;
    localVariables?: boolean;
    keyPair: { publicKey: string; privateKey: string };
  },
): Project {
  return db.write(() => {
    const id = db.newId();
    const { keyPair, ...fields } = project;
    return db.orm
      .insert(projects)
      .values({
        ...fields,
        id,
        nameKey: nameKey(fields.name),
        buildState: 'new',
        sshPublicKey: db.vault.seal(keyPair.publicKey, publicKeyCell(id)),
        sshPrivateKey: db.vault.seal(keyPair.privateKey, privateKeyCell(id)),
        createdAt: db.now(),
      })
      .returning(projectFields)
      .get();
  });
}

export function updateProject(
  db: Db,
  project: Project,
  changes: Partial<
    Pick<
      Project,
      | 'name'
      | 'description'
      | 'repositoryUrl'
      | 'badge'
      | 'cancelSuperseded'
      | 'submodules'
      | 'localVariables'
    >
  >,
): Project {
  return db.write(() => {
    db.touch(`project:${project.id}`);
    return db.orm
      .update(projects)
      .set({ ...changes, ...keyOfChange(project, changes.name) })
      .where(eq(projects.id, project.id))
      .returning(projectFields)
      .get() as Project;
  });
}

const MAX_OPENED_KEYS = 10_000;
type OpenedKey = { sealed: Buffer; name: string; host: string; bare: string; line: string };
const openedKeys = prepared(() => new Map<bigint, OpenedKey>());

/** Cached because every record and event of a project contains the key. */
function openPublicKey(db: Db, project: Project): OpenedKey {
  const { id, name, sshPublicKey: sealed } = project;
  const opened = openedKeys(db);
  const host = hostOf(db);
  const known = opened.get(id);
  if (known?.name === name && known.host === host && known.sealed.equals(sealed)) return known;
  const bare = withComment(db.vault.open(sealed, publicKeyCell(id)), '').trimEnd();
  const key = { sealed, name, host, bare, line: withComment(bare, keyComment(project, host)) };
  if (opened.size >= MAX_OPENED_KEYS) opened.clear();
  opened.set(id, key);
  return key;
}

/** The key to install, with a comment that names the project and this server. */
export const publicKeyOf = (db: Db, project: Project): string => openPublicKey(db, project).line;

/** The key without its comment, which never changes. */
export const bareKeyOf = (db: Db, project: Project): string => openPublicKey(db, project).bare;

export function privateKeyOf(db: Db, { id }: Project): string {
  const row = db.orm
    .select({ sealed: projects.sshPrivateKey })
    .from(projects)
    .where(eq(projects.id, id))
    .get();
  if (!row) throw refusal('not_found');
  return db.vault.open(row.sealed, privateKeyCell(id));
}

/** The owner's record with only the comment of the key, which is what the bodies of events store. */
export function storedProjectRecord(db: Db, project: Project) {
  return presentProject(project, { owned: true, sshPublicKey: ` ${keyComment(project, hostOf(db))}` });
}

type ProjectRecord = Readonly<ReturnType<typeof presentProject>>;

/** The records of each row that is still in memory: one for the owner and one for the others. */
const records = new WeakMap<Project, Map<boolean, ProjectRecord>>();

/** The record as `accountId` sees it. A cached row gets it once. */
export function projectRecord(db: Db, project: Project, accountId: bigint): ProjectRecord {
  let ofRow = records.get(project);
  if (!ofRow) {
    ofRow = new Map();
    records.set(project, ofRow);
  }
  const owned = project.ownerId === accountId;
  let record = ofRow.get(owned);
  if (!record) {
    record = Object.freeze(presentProject(project, { owned, sshPublicKey: publicKeyOf(db, project) }));
    ofRow.set(owned, record);
  }
  return record;
}

type Collaborator = { id: bigint; accountId: bigint; email: string; invitedById: bigint | null };

const collaboratorFields = {
  id: collaborators.id,
  accountId: accounts.id,
  email: accounts.email,
  invitedById: accounts.invitedById,
};

export function listCollaborators(db: Db, projectId: bigint, page: Page): Collaborator[] {
  return db.orm
    .select(collaboratorFields)
    .from(collaborators)
    .innerJoin(accounts, eq(accounts.id, collaborators.accountId))
    .where(and(eq(collaborators.projectId, projectId), olderThan(collaborators.id, page)))
    .orderBy(desc(collaborators.id))
    .limit(limitWithNext(page))
    .all();
}

export function findCollaborator(db: Db, projectId: bigint, id: bigint): Collaborator | undefined {
  return db.orm
    .select(collaboratorFields)
    .from(collaborators)
    .innerJoin(accounts, eq(accounts.id, collaborators.accountId))
    .where(and(eq(collaborators.projectId, projectId), eq(collaborators.id, id)))
    .get();
}

/** Ids of the collaborators that `inviterId` invited and that have no password yet. */
export function listInvitedCollaborators(db: Db, projectId: bigint, inviterId: bigint): Set<bigint> {
  const rows = db.orm
    .select({ id: collaborators.id })
    .from(collaborators)
    .innerJoin(accounts, eq(accounts.id, collaborators.accountId))
    .where(and(eq(collaborators.projectId, projectId), eq(accounts.invitedById, inviterId)))
    .all();
  return new Set(rows.map(({ id }) => id));
}

export function createCollaborator(db: Db, projectId: bigint, accountId: bigint): bigint {
  try {
    return db.write(() => {
      const id = db.newId();
      db.orm.insert(collaborators).values({ id, projectId, accountId }).run();
      return id;
    });
  } catch (error) {
    if (isUniqueViolation(error)) throw refusal('already_exists', 'email');
    throw error;
  }
}

export function deleteCollaborator(db: Db, collaborator: Collaborator): void {
  db.write(() => {
    db.orm.delete(collaborators).where(eq(collaborators.id, collaborator.id)).run();
    db.touch(`account:${collaborator.accountId}`);
  });
}
