// The composition root of `assay serve`: opens the data directory, starts the workers and serves API and pages.

import type { Services } from './api/endpoint.ts';
import { endpoints } from './api/endpoints.ts';
import { type Server, startServer } from './api/http/server.ts';
import { mountImages } from './api/images.ts';
import { createLogFeeds } from './api/log-feed.ts';
import { createMetrics } from './api/metrics.ts';
import { mountOAuth } from './api/oauth.ts';
import { createRouter, serve } from './api/router.ts';
import type { Settings } from './config.ts';
import { connectionNetwork } from './domain/caller-address.ts';
import { openContent } from './engine/archive/zip-content.ts';
import { ensureCertificate, loadCertificate } from './engine/certificate.ts';
import { openImageFiles } from './engine/swarm/stored-images.ts';
import { createLive } from './live.ts';
import type { Log } from './log.ts';
import { createDataDirectory, lockDataDirectory, openData, watchDatabase } from './store/data/data.ts';
import { imagesDirectory, tlsDirectory } from './store/data/paths.ts';
import { startCheckpoints } from './store/database/checkpoint.ts';
import type { Db } from './store/database/db.ts';
import { storeHost } from './store/database/stored-values.ts';
import { defaultImage } from './store/images.ts';
import { createLogSearch } from './store/result/search-builds.ts';
import { version } from './version.ts';
import { mountPages } from './web/pages.ts';
import { mountFiles } from './web/result/files.ts';
import { createArtifactFiles } from './work/artifact-files.ts';
import { createComparison } from './work/result/compare-builds.ts';
import { createSnapshots } from './work/source/snapshots.ts';
import { startWorkers } from './work/workers.ts';

export type App = {
  url: string;
  db: Db;
  /** Reads the configured certificate again, or renews the self-signed one. */
  reloadCertificate(): Promise<void>;
  close(): Promise<void>;
};

const RENEWAL_CHECK_MS = 12 * 3600_000;

/** Tests of the API pass a `beginWork` that runs no jobs. */
export async function startApp(
  settings: Settings,
  log: Log,
  beginWork: typeof startWorkers = startWorkers,
): Promise<App> {
  createDataDirectory(settings.data, settings.shared);
  const lock = lockDataDirectory(settings.data);
  const closing: (() => void | Promise<void>)[] = [lock.release];
  try {
    const db = openData(settings.data, process.env, upgrade =>
      upgrade.tookMs === undefined
        ? log.info('database upgrade started, which may take a while', upgrade)
        : log.info('database upgraded', upgrade),
    );
    closing.unshift(() => db.close());
    const checkpoints = startCheckpoints({
      db,
      onFailure: error => log.error('checkpoint failed, requests wait for the next ones', { cause: error }),
    });
    closing.unshift(() => checkpoints.stop());
    storeHost(db, new URL(settings.baseUrl).hostname);
    const isDatabaseHealthy = watchDatabase(db, settings.data);
    const live = createLive();
    db.onCommit = topics => live.publish(topics);
    const metrics = createMetrics();

    const filesHost = settings.filesUrl === undefined ? undefined : new URL(settings.filesUrl).hostname;
    const readCertificate = () =>
      settings.tlsCert !== undefined && settings.tlsKey !== undefined
        ? loadCertificate(settings.tlsCert, settings.tlsKey)
        : ensureCertificate({
            directory: tlsDirectory(settings.data),
            hosts: [
              settings.listen.host,
              new URL(settings.baseUrl).hostname,
              ...(filesHost === undefined ? [] : [filesHost]),
            ],
          });
    // Read before the workers start: what they begin with would delay it, and so the first requests.
    const certificate = await readCertificate();

    let services: Services | undefined;
    const workers = await beginWork({
      settings,
      db,
      live,
      log,
      baseUrl: () => services?.baseUrl ?? settings.baseUrl,
      onBuildFinished: build =>
        metrics.countBuild(
          build.buildState,
          (build.finishedAt ?? 0) - (build.startedAt ?? build.finishedAt ?? 0),
        ),
      onDelivery: metrics.countDelivery,
      onLook: metrics.countLook,
      onFiring: metrics.countFiring,
    });
    closing.unshift(() => workers.stop());
    const stopping = new AbortController();
    closing.unshift(() => stopping.abort());
    services = {
      db,
      live,
      log,
      metrics,
      feeds: createLogFeeds(live),
      logSearch: createLogSearch({ db, dataDirectory: settings.data }),
      baseUrl: settings.baseUrl,
      filesUrl: settings.filesUrl,
      openArtifact: openContent,
      artifactFiles: createArtifactFiles({ dataDirectory: settings.data, log, stopping: stopping.signal }),
      artifactsMs: settings.artifactsMs,
      logsMs: settings.retentionMs,
      version,
      authorityFingerprint: certificate.authorityFingerprint,
      dataDirectory: settings.data,
      snapshots: createSnapshots({
        db,
        log,
        dataDirectory: settings.data,
        hasFreeSpace: workers.hasFreeSpace,
        stopping: stopping.signal,
      }),
      hasFreeSpace: workers.hasFreeSpace,
      imageSettings: settings,
      webhookAllow: settings.webhookAllow,
      trustedProxies: settings.trustedProxies,
      waiting: workers.waiting,
      waitingCompile: workers.waitingCompile,
      compareBuilds: createComparison({ db, dataDirectory: settings.data }),
      vitals: () => ({
        healthy: isDatabaseHealthy(),
        slots: workers.slots(),
        slotsUsed: workers.slotsUsed(),
        compileSlots: workers.compileSlots(),
        compilesRunning: workers.compilesRunning(),
        freeDiskBytes: workers.freeDiskBytes(),
        cacheLimitBytes: settings.cacheLimitBytes,
        cacheTotalBytes: workers.cacheTotalBytes(),
        minFreeDiskBytes: settings.minFreeDiskBytes,
        dockerUnavailable: workers.dockerUnavailable(),
        image: defaultImage(db, settings),
        nodes: workers.nodes(),
      }),
    };
    const router = createRouter(services, endpoints);
    mountOAuth(router, services);
    if (settings.engine === 'swarm')
      mountImages(router, services, openImageFiles(imagesDirectory(settings.data)));
    mountPages(router, services, endpoints);
    // The second host serves artifacts and nothing else.
    const filesRouter = filesHost === undefined ? router : createRouter(services, []);
    mountFiles(filesRouter, services);
    const serveMain = serve(router, services);
    const serveFiles = serve(filesRouter, services);
    const isFilesHost = ({ url }: Request) =>
      filesHost !== undefined && new URL(url).hostname.replace(/\.$/, '') === filesHost;

    const server: Server = await startServer({
      ...settings.listen,
      certificate,
      fetch: (request, env) => (isFilesHost(request) ? serveFiles : serveMain)(request, env),
      log,
      clientKeyOf: address => connectionNetwork(address, settings.trustedProxies),
    });
    closing.unshift(() => server.close());
    // With port 0 the system chooses a free port, which is known only now.
    if (settings.listen.port === 0) {
      services.baseUrl = services.baseUrl.replace(/:0$/, `:${server.port}`);
      services.filesUrl = services.filesUrl?.replace(/:0$/, `:${server.port}`);
    }
    const reloadCertificate = async () => {
      const renewed = await readCertificate();
      services.authorityFingerprint = renewed.authorityFingerprint;
      server.setCertificate(renewed);
    };
    const renewal = setInterval(() => {
      reloadCertificate().catch(error => log.error('certificate could not be renewed', { cause: error }));
    }, RENEWAL_CHECK_MS);
    closing.unshift(() => clearInterval(renewal));

    return {
      url: services.baseUrl,
      db,
      reloadCertificate,
      close: async () => {
        for (const step of closing) await step();
      },
    };
  } catch (error) {
    for (const step of closing) await step();
    throw error;
  }
}
