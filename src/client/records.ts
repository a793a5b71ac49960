// The records that the server sends, as the client reads them.

import type { presentArtifact } from '../contract/records/artifact.ts';
import type {
  presentBuild,
  presentBuildRequest,
  presentCommit,
  presentRequestDetails,
} from '../contract/records/build.ts';
import type { presentDependency } from '../contract/records/dependency.ts';
import type { presentDeploy, presentStrategy } from '../contract/records/deploy.ts';
import type { presentDiff } from '../contract/records/diff.ts';
import type { presentProject } from '../contract/records/project.ts';
import type { presentFoundLine } from '../contract/records/search.ts';
import type { presentBuildTest, presentTest } from '../contract/records/test.ts';

export type Artifact = ReturnType<typeof presentArtifact>;
export type Build = ReturnType<typeof presentBuild>;
/** As the list of a request has it. */
export type SuiteBuild = Build & { suite: string; estimated_seconds?: number };
export type BuildDiff = ReturnType<typeof presentDiff>;
export type BuildRequest = ReturnType<typeof presentBuildRequest>;
/** With `details`. */
export type DetailedRequest = BuildRequest & ReturnType<typeof presentRequestDetails>;
export type BuildTest = ReturnType<typeof presentBuildTest>;
export type Commit = ReturnType<typeof presentCommit>;
export type FoundLine = ReturnType<typeof presentFoundLine>;
export type Dependency = ReturnType<typeof presentDependency>;
export type Project = ReturnType<typeof presentProject>;
export type Suite = { id_str: string; name: string };
export type Test = ReturnType<typeof presentTest>;
export type Deploy = ReturnType<typeof presentDeploy>;
export type DeployStrategy = ReturnType<typeof presentStrategy>;
