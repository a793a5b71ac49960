// Archives of earlier versions: a data directory, a backup of it, and the responses of the API. Each is one file in
// this directory, made by make-version.ts.
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

/** The names inside an archive. */
export const DATA = 'data';
export const BACKUP = 'assay.backup';
export const RECORDING = 'recording.json';

/** Accounts that exist only in the archive. An invited person has neither a key nor a password. */
export type KeptAccount = { email: string; apiKey?: string; password?: string };

/** A GET and its response. `as` is the Authorization header of the request. */
export type RecordedAnswer = { path: string; as?: string; status: number; body: string };

export type Recording = {
  version: string;
  schema: number;
  instance: string;
  accounts: KeptAccount[];
  answers: RecordedAnswer[];
};

const here = import.meta.dirname;

export const keptVersions = readdirSync(here)
  .filter(name => name.endsWith('.tar.gz'))
  .map(name => name.slice(0, -'.tar.gz'.length))
  .sort();

export const archiveOf = (name: string) => join(here, `${name}.tar.gz`);

export function unpackVersion(name: string, directory: string): { data: string; recording: Recording } {
  execFileSync('tar', ['-xzf', archiveOf(name), '--no-same-owner', '-C', directory]);
  return {
    data: join(directory, DATA),
    recording: JSON.parse(readFileSync(join(directory, RECORDING), 'utf8')),
  };
}

export type Visitor = {
  get(path: string): Promise<{ status: number; text: string }>;
  post(path: string, form: Record<string, string>): Promise<{ status: number; text: string }>;
};

/** A browser that keeps cookies, runs no scripts and follows no redirects. */
export function createVisitor(origin: string, ca: string): Visitor {
  const cookies = new Map<string, string>();
  const ask = (method: string, path: string, form?: Record<string, string>) =>
    new Promise<{ status: number; text: string }>((resolve, reject) => {
      const headers = {
        cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; '),
        ...(form && { 'content-type': 'application/x-www-form-urlencoded' }),
      };
      const asked = request(origin + path, { method, ca, headers, agent: false, timeout: 60_000 }, answer => {
        for (const cookie of answer.headers['set-cookie'] ?? []) {
          const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
          cookies.set(name, value);
        }
        text(answer).then(body => resolve({ status: answer.statusCode ?? 0, text: body }), reject);
      });
      asked.on('timeout', () => asked.destroy(new Error(`no answer to ${method} ${path}`)));
      asked.on('error', reject);
      asked.end(form && new URLSearchParams(form).toString());
    });
  return { get: path => ask('GET', path), post: (path, form) => ask('POST', path, form) };
}
