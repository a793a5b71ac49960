// Paths of the server are removed from messages to users.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hideHostPaths } from '../../src/domain/host-paths.ts';

test('paths of the server are hidden from users, paths in containers and URLs are not', () => {
  const shown: [text: string, as: string][] = [
    [
      "fatal: not a git repository: '/var/lib/assay/mirrors/7.git'",
      "fatal: not a git repository: 'DATA/mirrors/7.git'",
    ],
    [
      'Docker at unix:///run/user/1000/docker.sock cannot be reached (start): is Docker running?',
      'Docker at its socket cannot be reached (start): is Docker running?',
    ],
    [
      'error mounting "/srv/docker/overlay2/0a1b/merged/x": no such file',
      'error mounting "(a file of Docker)": no such file',
    ],
    [
      "ENOSPC: no space left on device, open '/home/ada/x'",
      "ENOSPC: no space left on device, open '(a file of the server)'",
    ],
    ["cd: /srv/project: can't cd", "cd: /srv/project: can't cd"],
    ['/home/assay/.cache is not writable', '/home/assay/.cache is not writable'],
    ['exec: "/bin/sh": stat /bin/sh: no such file', 'exec: "/bin/sh": stat /bin/sh: no such file'],
    [
      'https://example.org/var/lib and git@host:/var/x.git',
      'https://example.org/var/lib and git@host:/var/x.git',
    ],
  ];
  for (const [text, as] of shown) assert.equal(hideHostPaths(text, '/var/lib/assay'), as);
});
