// The fixture of the project pages: the real application without workers, and a project with commits. Queued builds
// wait until a test changes their state.
import type { Settings } from '../../../src/config.ts';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import {
  type Commit,
  createBuildRequest,
  enqueueBuilds,
  enqueueSomeBuilds,
  recordCommit,
} from '../../../src/store/builds.ts';
import { createCollaborator, createProject, type Project } from '../../../src/store/projects.ts';
import { createSuite, type Suite } from '../../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../../src/store/transition.ts';
import { bootApp, commitFields, type TestApp } from '../../support/app.ts';
import { openBrowser, type Person } from '../../support/browser.ts';
import { listBuildsOfRequest } from '../../support/builds.ts';
import { launchSignedIn } from '../signed-in.ts';

const keyPair = generateKeyPair('assay');
let made = 0;

export type ProjectFixture = TestApp & {
  /** A person who is signed in. */
  arrive(
    who?: 'owner' | 'collaborator' | 'stranger',
    options?: { dark?: boolean; scripts?: boolean },
  ): Promise<Person>;
  /** A person without a session. */
  arriveUnknown(): Promise<Person>;
  /** A project of the owner or of another account, which the collaborator can see. */
  makeProject(name: string, ownerId?: bigint): Project;
  makeSuites(project: Project, ...names: string[]): Suite[];
  /** A commit with queued builds of `suites`; the rules excluded the others. */
  makeCommit(project: Project, message: string, suites: readonly Suite[], others?: readonly Suite[]): Commit;
  /** Ends the builds of a commit, in the order of the suites. */
  end(commit: Commit, ...ends: ('pass' | 'fail' | 'error' | 'start' | 'cancel' | '')[]): void;
};

export async function openProjectFixture(settings: Partial<Settings> = {}): Promise<ProjectFixture> {
  const app = await bootApp(settings);
  const signedIn = await launchSignedIn(app);
  const { db, people } = app;
  const requests = new Map<bigint, bigint>();
  const closeApp = app.close;
  return Object.assign(app, {
    arrive: (who: 'owner' | 'collaborator' | 'stranger' = 'owner', options = {}) =>
      signedIn.arrive(options, who),
    arriveUnknown: () => openBrowser(signedIn.browser, app.url),
    makeProject: (name: string, ownerId = people.owner.account.id) =>
      db.write(() => {
        const project = createProject(db, {
          ownerId,
          name,
          description: '',
          repositoryUrl: 'git@git.invalid:team/website.git',
          badge: false,
          cancelSuperseded: false,
          keyPair,
        });
        createCollaborator(db, project.id, people.collaborator.account.id);
        return project;
      }),
    makeSuites: (project: Project, ...names: string[]) =>
      names.map(name =>
        createSuite(db, {
          projectId: project.id,
          name,
          description: '',
          command: `make ${name.toLowerCase().replaceAll(' ', '-')}`,
          image: null,
        }),
      ),
    makeCommit: (
      project: Project,
      message: string,
      suites: readonly Suite[],
      others: readonly Suite[] = [],
    ) =>
      db.write(() => {
        made += 1;
        const request = createBuildRequest(db, project, 'main', people.owner.account.email);
        const commit = recordCommit(db, project.id, {
          ...commitFields(made.toString(16).padStart(8, 'c').padEnd(40, 'e')),
          message,
          committedDate: new Date(Date.now() - 3_600_000).toISOString(),
        });
        moveRequest(db, request.id, 'fetch');
        const rule = {
          subject: 'commit.branches' as const,
          operator: 'equals' as const,
          value: 'release',
          saw: ['main'],
        };
        enqueueBuilds(db, request.id, commit, 'main', [
          ...suites.map(({ id, name }) => ({ suiteId: id, suiteName: name, runs: true, rules: [] })),
          ...others.map(({ id, name }) => ({
            suiteId: id,
            suiteName: name,
            runs: false,
            rules: [{ ...rule, holds: false }],
          })),
        ]);
        while (enqueueSomeBuilds(db));
        requests.set(commit.id, request.id);
        return commit;
      }),
    end: (commit: Commit, ...ends: ('pass' | 'fail' | 'error' | 'start' | 'cancel' | '')[]) => {
      const builds = listBuildsOfRequest(db, requests.get(commit.id) as bigint).reverse();
      for (const [at, end] of ends.entries()) {
        const id = builds[at]?.id as bigint;
        if (end === '') continue;
        if (end !== 'cancel') moveBuild(db, id, 'start');
        if (end === 'start') continue;
        const finishedAt = Date.now();
        moveBuild(db, id, end, {
          ...(end !== 'cancel' && { startedAt: finishedAt - 1000 * (7 + 31 * at), finishedAt }),
          ...(end === 'pass' && { exitCode: 0 }),
          ...(end === 'fail' && { exitCode: 2 }),
          ...(end === 'error' && {
            error: 'The image node:26 is not there. Import it, or name another one.',
          }),
        });
      }
    },
    close: async () => {
      await signedIn.close();
      await closeApp();
    },
  }) as ProjectFixture;
}
