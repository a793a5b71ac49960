// A root file system with only busybox: another shell, other tools and no git, as in Alpine.
import { execFile } from 'node:child_process';
import { cp, mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const BUSYBOX = '/usr/bin/busybox';

export async function busyboxRoot(directory: string): Promise<void> {
  await mkdir(join(directory, 'bin'), { recursive: true });
  await cp(BUSYBOX, join(directory, 'bin/busybox'));
  const { stdout } = await promisify(execFile)(BUSYBOX, ['--list']);
  for (const applet of stdout.trim().split('\n')) {
    if (applet !== 'busybox') await symlink('busybox', join(directory, 'bin', applet));
  }
}
