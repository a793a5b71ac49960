// Removes the server's file paths from messages of git, Docker and the operating system before users see them.

const DOCKER_FILE =
  /(?:\/[^\s"'`,;:()]+)?\/(?:overlay2|volumes|containers|containerd|buildkit)\/[^\s"'`,;:()]*/g;
/** Directories that reveal the layout of the server and that a container's own message rarely refers to. */
const SERVER_FILE = /(?<![\w/.:-])\/(?:var|run|root|mnt|media|tmp|data|home(?!\/assay\b))\/[^\s"'`,;:()]*/g;
const SOCKET = /unix:\/\/\/[^\s"'`,;()]+/g;

/** A path in the data directory becomes `DATA/…`, after the name of the setting. */
export function hideHostPaths(text: string, dataDirectory: string): string {
  return text
    .replaceAll(dataDirectory, 'DATA')
    .replace(SOCKET, 'its socket')
    .replace(DOCKER_FILE, '(a file of Docker)')
    .replace(SERVER_FILE, '(a file of the server)');
}
