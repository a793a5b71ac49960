// Types that the browser's modules share. Only the type checker reads this file: it is not served.

import type { BuildState } from '../../domain/build.ts';
import type { CompileState } from '../../domain/dependency.ts';

/** State of the build or the compile whose log is shown. */
export type LogState = BuildState | CompileState;
/** What the log stream sends as `state` and `end`: a build or a dependency. */
export type LogOwner = {
  build_state?: LogState;
  marketplace_state?: LogState;
  finished_at?: string | null;
  node?: string;
};

export type Rgb = [red: number, green: number, blue: number];
/** An index into the 256 colours of a terminal, or a colour itself. */
export type Colour = number | Rgb;
/** How a terminal shows text; what is undefined is as the log shows it by default. */
export type Style = {
  fore?: Colour | undefined;
  back?: Colour | undefined;
  bold?: true | undefined;
  dim?: true | undefined;
  italic?: true | undefined;
  underline?: true | undefined;
  inverse?: true | undefined;
  strike?: true | undefined;
  link?: string | undefined;
};
export type Run = { text: string; style: Style | undefined };
/** `sections`: marks of GitLab that were printed in the line, before the text that is left of it. */
export type Line = { text: string; runs?: Run[]; sections?: Section[] };
export type Section = { name: string; isEnd: boolean; isCollapsed: boolean };
/** `isWhole` is false for the last line while it has no end; `end` is how far the written text has been read. */
export type ShowLine = (line: Line, isWhole: boolean, end: number) => void;

/** Up to 500 lines: plain text at first, rows once someone comes near. */
export type Block = {
  element: HTMLElement;
  first: number;
  lines: Line[];
  rows: HTMLElement[];
  shown: number;
  isMade: boolean;
  isNumbered: boolean;
};
/** What groups lines: a phase of the job, or what a command prints for GitHub Actions, GitLab or Buildkite. */
export type GroupKind = 'phase' | 'group' | 'section' | 'buildkite';
/** `opening`: whether a group is open while it is the current one, or always or never unless the reader opens it. */
export type GroupBegin = {
  does: 'begin';
  kind: GroupKind;
  title: string;
  opening: 'current' | 'always' | 'never';
  name?: string;
  isDim?: boolean;
};
export type GroupMark = GroupBegin | { does: 'end' | 'open'; kind: GroupKind; name?: string };
/** A group on the page: its first line is the head, the lines after it can be hidden. */
export type Fold = {
  details: HTMLDetailsElement;
  head: HTMLElement;
  body: HTMLElement;
  row: HTMLElement;
  kind: GroupKind;
  name: string | undefined;
  opening: GroupBegin['opening'];
  line: number;
  /** The first line that is not in it; undefined while it has not ended. */
  endLine: number | undefined;
  isTouched: boolean;
};
/** Lines selected by their numbers, which count from 1. */
export type Selected = { from: number; first: number; last: number };
export type Match = { row: number; start: number; end: number };
/** Where a write to the log ended, and when it was made. */
export type WriteTime = [endOffset: number, atMs: number];

export type Lines = ReturnType<typeof import('./log-lines.js').createLines>;
