// Finds markers in a commit message that ask for no build, such as [skip ci].

const BRACKETED = /\[(?:(?:skip|no)[ -]+ci|ci[ -]+skip|skip[ -]+assay|assay[ -]+skip)\]/i;
const STARRED = /\*\*\*NO_CI\*\*\*/i;
const TRAILER = /^skip-checks:[ \t]*true[ \t]*$/i;

/** The marker as it is written in the message, or undefined. */
export function findSkipMarker(message: string): string | undefined {
  const bracketed = BRACKETED.exec(message) ?? STARRED.exec(message);
  if (bracketed) return bracketed[0];
  // The trailers of a message are its last paragraph.
  const lines = message.trimEnd().split('\n');
  const start = lines.findLastIndex(line => line.trim() === '') + 1;
  return start === 0
    ? undefined
    : lines
        .slice(start)
        .find(line => TRAILER.test(line))
        ?.trim();
}
