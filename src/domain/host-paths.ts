// Messages of git, Docker and the system name files of the server. Users are shown what happened, not where things are.

const DOCKER_FILE =
  /(?:\/[^\s"'`,;:()]+)?\/(?:overlay2|volumes|containers|containerd|buildkit)\/[^\s"'`,;:()]*/g;
/** Places that a message of a container hardly means, and that say much about a server. */
const SERVER_FILE = /(?<![\w/.:-])\/(?:var|run|root|mnt|media|tmp|data|home(?!\/assay\b))\/[^\s"'`,;:()]*/g;
const SOCKET = /unix:\/\/\/[^\s"'`,;()]+/g;

/** What is in the data directory is shown as `DATA/…`, by the name of the setting. */
export function hideHostPaths(text: string, dataDirectory: string): string {
  return text
    .replaceAll(dataDirectory, 'DATA')
    .replace(SOCKET, 'its socket')
    .replace(DOCKER_FILE, '(a file of Docker)')
    .replace(SERVER_FILE, '(a file of the server)');
}
