// The composition root: everything that `assay serve` is, put together. Knows everyone; nobody knows it.

import { statfsSync } from 'node:fs';
import type { Services } from './api/endpoint.ts';
import { allEndpoints } from './api/endpoints.ts';
import { createLogFeeds } from './api/log-feed.ts';
import { createMetrics } from './api/metrics.ts';
import { createRouter } from './api/router.ts';
import { type Server, startServer } from './api/server.ts';
import type { Settings } from './config.ts';
import { ensureCertificate, loadCertificate } from './engine/certificate.ts';
import { createLive } from './live.ts';
import type { Log } from './log.ts';
import { holdDataDirectory, makeDataDirectory, openData } from './store/data.ts';
import type { Db } from './store/db.ts';
import { tlsDirectory } from './store/paths.ts';
import { version } from './version.ts';
import { mountPages } from './web/pages.ts';

export type App = {
  url: string;
  db: Db;
  /** Reads the certificate again, or renews the own one. */
  reloadCertificate(): Promise<void>;
  close(): Promise<void>;
};

const RENEWAL_CHECK_MS = 12 * 3600_000;

export async function startApp(settings: Settings, log: Log): Promise<App> {
  makeDataDirectory(settings.data);
  const hold = holdDataDirectory(settings.data);
  const closing: (() => void | Promise<void>)[] = [hold.release];
  try {
    const db = openData(settings.data);
    closing.unshift(() => db.close());
    const live = createLive();
    db.onCommit = topics => live.publish(topics);
    const metrics = createMetrics();
    const feeds = createLogFeeds(live);

    const freeDiskBytes = () => {
      const { bavail, bsize } = statfsSync(settings.data);
      return bavail * bsize;
    };
    const services: Services = {
      db,
      live,
      baseUrl: settings.baseUrl,
      version,
      dataDirectory: settings.data,
      hasRoom: () => freeDiskBytes() >= settings.minFreeDiskBytes,
      webhookAllow: settings.webhookAllow,
      waiting: () => undefined,
      vitals: () => ({
        healthy: true,
        slots: settings.concurrency,
        slotsUsed: 0,
        freeDiskBytes: freeDiskBytes(),
      }),
    };
    const endpoints = allEndpoints({ feeds, metrics, version, baseUrl: settings.baseUrl });
    const router = createRouter(services, endpoints, { log, metrics });
    mountPages(router, endpoints);

    const certificate = () =>
      settings.tlsCert !== undefined && settings.tlsKey !== undefined
        ? loadCertificate(settings.tlsCert, settings.tlsKey)
        : ensureCertificate({
            directory: tlsDirectory(settings.data),
            hosts: [settings.listen.host, new URL(settings.baseUrl).hostname],
          });
    const server: Server = await startServer({
      ...settings.listen,
      certificate: await certificate(),
      fetch: (request, env) => router.fetch(request, env),
      log,
    });
    closing.unshift(() => server.close());
    const reloadCertificate = async () => server.setCertificate(await certificate());
    const renewal = setInterval(() => {
      reloadCertificate().catch(cause => log.error('certificate could not be renewed', { cause }));
    }, RENEWAL_CHECK_MS);
    closing.unshift(() => clearInterval(renewal));

    return {
      url: settings.baseUrl,
      db,
      reloadCertificate,
      close: async () => {
        for (const step of closing) await step();
      },
    };
  } catch (cause) {
    for (const step of closing) await step();
    throw cause;
  }
}
