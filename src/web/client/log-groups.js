// Reads where groups of lines begin and end in a log: phases of the job, and what commands print for GitHub Actions,
// GitLab and Buildkite. It creates no elements.

/** @import { GroupMark, Line, Section } from './types.ts' */

/** Lines of the service with which a phase begins. */
const phase = /^\[assay\] (?:checkout of|launch|suite|reading the|unpacking|compiling) /;
const github = /^::group::(.*)$/;
const githubEnd = /^::endgroup::\s*$/;
const buildkite = /^(---|\+\+\+|~~~) +(\S.*)$/;
/** Results of Go's tests, which begin in the same way. */
const goResult = /^--- (?:PASS|FAIL|SKIP|BENCH): /;
const buildkiteOpen = /^\^\^\^ \+\+\+\s*$/;
const section = /^section_(start|end):\d{1,20}:([\w.-]{1,200})(?:\[([\w=,]{0,200})\])?$/;
export const MAX_SECTION_CHARACTERS = 460;

/**
 * A mark of GitLab, which a carriage return separates from the title.
 * @param {string} text
 * @returns {Section | undefined}
 */
export function readSection(text) {
  const [, kind, name, options = ''] = section.exec(text) ?? [];
  if (kind === undefined || name === undefined) return undefined;
  return { name, isEnd: kind === 'end', isCollapsed: /(?:^|,)collapsed=true(?:,|$)/.test(options) };
}

/**
 * What a whole line begins or ends, in this order. Undefined for most lines.
 * @param {Line} line
 * @returns {GroupMark[] | undefined}
 */
export function readMarks({ text, sections }) {
  if (sections)
    return sections.map(({ name, isEnd, isCollapsed }) =>
      isEnd
        ? { does: 'end', kind: 'section', name }
        : {
            does: 'begin',
            kind: 'section',
            name,
            title: text || name,
            opening: isCollapsed ? 'never' : 'always',
          },
    );
  // Nearly all lines are done here.
  switch (text.charCodeAt(0)) {
    case 91: // [
      return phase.test(text)
        ? [{ does: 'begin', kind: 'phase', title: text, opening: 'current' }]
        : undefined;
    case 58: {
      // :
      const title = github.exec(text)?.[1];
      if (title !== undefined)
        return [{ does: 'begin', kind: 'group', title: title.trim() || 'Group', opening: 'current' }];
      return githubEnd.test(text) ? [{ does: 'end', kind: 'group' }] : undefined;
    }
    case 43: // +
    case 45: // -
    case 126: {
      // ~
      const [, mark, title] = buildkite.exec(text) ?? [];
      if (title === undefined || goResult.test(text)) return undefined;
      const opening = mark === '+++' ? 'always' : mark === '~~~' ? 'never' : 'current';
      return [{ does: 'begin', kind: 'buildkite', title, opening, isDim: mark === '~~~' }];
    }
    case 94: // ^
      return buildkiteOpen.test(text) ? [{ does: 'open', kind: 'buildkite' }] : undefined;
    case 115: {
      // s
      const alone = readSection(text);
      return alone && readMarks({ text: '', sections: [alone] });
    }
    default:
      return undefined;
  }
}

/** A line of a diff begins as a group does: the next one decides. @param {string} text */
export const mayBeDiff = text => text.startsWith('--- ');

/**
 * Whether a line after one that may be of a diff is its second one; undefined if it has too few characters yet.
 * @param {string} text
 * @param {boolean} isWhole
 */
export function isDiffSecond(text, isWhole) {
  if (text.startsWith('+++ ')) return true;
  return isWhole || !'+++ '.startsWith(text) ? false : undefined;
}
