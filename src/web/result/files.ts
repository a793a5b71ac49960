// Opens artifacts in the browser, under /files/<token>/<path>. They may be hostile: a sandbox gives their scripts an origin of
// their own, or FILES_URL names a second host that serves nothing else. No cookie is read here.

import type { Context, Hono } from 'hono';
import { html } from 'hono/html';
import { callerOf } from '../../api/authenticate.ts';
import type { Services } from '../../api/endpoint.ts';
import { isPlainHttp } from '../../api/http/caller-address.ts';
import { markAuthenticated } from '../../api/http/connections.ts';
import { respondArtifact } from '../../api/result/artifact-response.ts';
import { createFileToken, type FileToken, readFileToken } from '../../api/result/file-token.ts';
import type { Bindings } from '../../api/router.ts';
import { admit, authorize } from '../../domain/access.ts';
import { Refusal, refusal } from '../../domain/refusal.ts';
import { attachmentOf, BYTES, contentTypeOf } from '../../domain/result/content-type.ts';
import { findAccount } from '../../store/accounts.ts';
import type { Build } from '../../store/builds.ts';
import type { Db } from '../../store/database/db.ts';
import { findVisibleProject } from '../../store/projects.ts';
import { findAnyBuild, findBuildArtifactByPath } from '../../store/result/build-artifacts.ts';
import type { Html } from '../frame/visit.ts';

const CONTENT = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:";
/** On the server's own host: without `allow-same-origin`, scripts have no cookie, no storage and no API. */
const SANDBOXED = `sandbox allow-scripts allow-popups; ${CONTENT}; connect-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'`;
/** On the second host: module scripts, fonts and requests to other files of the report work. */
const ON_OWN_HOST = `${CONTENT}; form-action 'none'; frame-ancestors 'self'; base-uri 'none'`;

const addressOf = ({ filesUrl, baseUrl }: Services) => filesUrl ?? baseUrl;

/** The address of an artifact that works for an hour. */
export function fileHref(
  services: Services,
  { buildId, path }: { buildId: bigint; path: string },
  accountId: bigint,
): string {
  const token = createFileToken(services.db, { buildId, accountId });
  return `${addressOf(services)}/files/${token}/${path.split('/').map(encodeURIComponent).join('/')}`;
}

/** `router` is that of the second host if FILES_URL is set. */
export function mountFiles(router: Hono<Bindings>, services: Services): void {
  router.get('/files/*', async (context: Context<Bindings>) => {
    const { env, req } = context;
    env.route = '/files/*';
    env.showError = () =>
      messagePage(500, 'Something went wrong on the server', html`Try again in a moment.`);
    const { pathname } = new URL(req.raw.url);
    if (isPlainHttp(env.outgoing, services))
      return context.redirect(`${addressOf(services)}${pathname}`, 308);
    const [, text = '', rest = ''] = /^\/files\/([^/]+)\/(.*)$/.exec(pathname) ?? [];
    const token = readFileToken(services.db, text);
    const build = token && findReadableBuild(services.db, token);
    if (!build) return notFound();
    if (token?.isExpired) return expired(services, build);
    markAuthenticated(env.outgoing);
    return respondFile(services, req.raw, build, rest);
  });
}

/** Checked for each request: the account may have lost access since it got the token. */
function findReadableBuild(db: Db, { buildId, accountId }: FileToken): Build | undefined {
  const account = findAccount(db, accountId);
  const build = findAnyBuild(db, buildId);
  const project = build && findVisibleProject(db, accountId, build.projectId);
  if (!account || !project) return undefined;
  try {
    const caller = callerOf(db, account, undefined);
    admit(caller, undefined);
    authorize(caller, 'sees', project.ownerId, 'refused');
    return build;
  } catch (error) {
    if (error instanceof Refusal) return undefined;
    throw error;
  }
}

async function respondFile(
  services: Services,
  request: Request,
  build: Build,
  encodedPath: string,
): Promise<Response> {
  try {
    const path = decodePath(encodedPath);
    const artifact = findBuildArtifactByPath(services.db, build.id, path);
    if (!artifact) throw refusal('not_found');
    const type = contentTypeOf(path);
    return await respondArtifact(services, request, artifact, {
      'content-type': type,
      ...(type === BYTES && { 'content-disposition': attachmentOf(path) }),
      'content-security-policy': services.filesUrl === undefined ? SANDBOXED : ON_OWN_HOST,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cache-control': 'private',
    });
  } catch (error) {
    if (error instanceof Refusal) return notFound();
    throw error;
  }
}

/** A path that ends with a slash stands for the index.html in it, as reports expect. */
function decodePath(encoded: string): string {
  try {
    const path = decodeURIComponent(encoded);
    return path === '' || path.endsWith('/') ? `${path}index.html` : path;
  } catch {
    throw refusal('not_found');
  }
}

const notFound = () =>
  messagePage(
    404,
    'File not found',
    html`The address is not complete, the build does not have this file, its artifacts were deleted, or you can no longer see the project.`,
  );

function expired({ baseUrl }: Services, build: Build): Promise<Response> {
  const tab = `${baseUrl}/ui/projects/${build.projectId}/builds/${build.id}/artifacts`;
  return messagePage(
    410,
    'This address has expired',
    html`An opened artifact can be read for an hour. <a href="${tab}">Go to the artifacts of the build</a> and open it again.`,
  );
}

/** Stands alone: the second host has no style sheets. */
async function messagePage(status: number, title: string, text: Html): Promise<Response> {
  const body = await html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} · Assay</title>
<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1.25rem}h1{font-size:1.35rem}</style>
</head>
<body><main><h1>${title}</h1><p>${text}</p></main></body>
</html>
`;
  return new Response(String(body), {
    status,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy':
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
    },
  });
}
