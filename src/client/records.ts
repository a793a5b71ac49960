// The records that the server sends, as the client reads them.

import type { presentBuild, presentBuildRequest, presentCommit } from '../contract/records/build.ts';
import type { presentProject } from '../contract/records/project.ts';

export type Build = ReturnType<typeof presentBuild>;
export type BuildRequest = ReturnType<typeof presentBuildRequest>;
export type Commit = ReturnType<typeof presentCommit>;
export type Project = ReturnType<typeof presentProject>;
export type Suite = { id_str: string; name: string };
