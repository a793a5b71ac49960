// Writes a queue of very many builds directly into the store of a stopped program: requests of a hundred suites each.
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../../src/store/builds.ts';
import { openData } from '../../../src/store/data/data.ts';
import { findProject, type Project } from '../../../src/store/projects.ts';
import { createSuite } from '../../../src/store/suites.ts';
import { moveRequest } from '../../../src/store/transition.ts';

const SUITES = 100;

export function fillQueue(data: string, projectId: bigint, builds: number): void {
  const db = openData(data);
  // Copies a build of the same request, with another suite.
  const copy = db.sqlite.prepare(`
    INSERT INTO builds (id, project_id, build_request_id, commit_id, commit_ref, suite_id, suite_name, build_state,
      attempts, created_at)
    SELECT ?, project_id, build_request_id, commit_id, commit_ref, ?, suite_name, build_state, attempts,
      created_at
    FROM builds WHERE build_request_id = ? LIMIT 1`);
  try {
    db.write(() => {
      const project = findProject(db, projectId) as Project;
      const suites = Array.from({ length: SUITES }, (_, number) =>
        createSuite(db, {
          projectId,
          name: `suite ${number}`,
          description: '',
          command: 'true',
          image: null,
        }),
      );
      const [first, ...others] = suites.map(suite => suite.id) as [bigint, ...bigint[]];
      for (let request = 0; request < builds / SUITES; request++) {
        const { id } = createBuildRequest(db, project, 'main', 'owner@example.org');
        moveRequest(db, id, 'fetch');
        const commit = recordCommit(db, projectId, commitOf(request));
        enqueueBuilds(db, id, commit, 'main', [{ suiteId: first, suiteName: 'load', runs: true, rules: [] }]);
        for (const suiteId of others) copy.run(db.newId(), suiteId, id);
      }
    });
  } finally {
    db.close();
  }
}

function commitOf(number: number) {
  const person = { name: 'Ada', email: 'ada@example.test', at: '2024-01-01T00:00:00+00:00' };
  return {
    ref: number.toString(16).padStart(40, '0'),
    message: `Commit ${number}`,
    authorName: person.name,
    authorEmail: person.email,
    authoredDate: person.at,
    committerName: person.name,
    committerEmail: person.email,
    committedDate: person.at,
    branches: '["main"]',
    tags: '[]',
    files: '[]',
  };
}
