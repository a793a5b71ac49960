// Cron expressions: which ones are valid, and at which times they fire in a time zone. Wall times are enumerated as if
// they were UTC, where clocks never change; Temporal says which offsets the zone has. Times are in milliseconds.

const MAX_LENGTH = 200;
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
/** A new expression must fire within this time. The 29th of February is at most this far away. */
const MAX_WAIT_YEARS = 8;
/** A date repeats its weekday within 40 years, so what does not fire in this time never does. */
const HORIZON_MS = 41 * 366 * DAY_MS;

const months = 'January February March April May June July August September October November December'.split(
  ' ',
);
const weekdays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

type Field = { min: number; max: number; names?: string[] };
const fields: Field[] = [
  { min: 0, max: 59 },
  { min: 0, max: 23 },
  { min: 1, max: 31 },
  { min: 1, max: 12, names: months },
  // 0 and 7 are Sunday.
  { min: 0, max: 7, names: weekdays },
];
const words = new Map([
  ['@hourly', '0 * * * *'],
  ['@daily', '0 0 * * *'],
  ['@midnight', '0 0 * * *'],
  ['@weekly', '0 0 * * 0'],
  ['@monthly', '0 0 1 * *'],
  ['@yearly', '0 0 1 1 *'],
  ['@annually', '0 0 1 1 *'],
]);

/** The wall times of each day, and the days. */
type Expression = { texts: string[]; times: number[]; isDay(day: Date): boolean };

function parse(cron: string): Expression | undefined {
  if (cron.length > MAX_LENGTH) return undefined;
  const texts = (words.get(cron.trim().toLowerCase()) ?? cron.trim()).split(/[ \t]+/);
  if (texts.length !== fields.length) return undefined;
  const sets = texts.map((text, index) => parseField(text, fields[index]!));
  const [minutes, hours, days, monthNumbers, dayNumbers] = sets;
  if (!minutes || !hours || !days || !monthNumbers || !dayNumbers) return undefined;
  const times = [...hours].flatMap(hour => [...minutes].map(minute => (hour * 60 + minute) * MINUTE_MS));
  // If both fields of days are restricted, one of them suffices. A field that starts with * is not restricted.
  const oneSuffices = !texts[2]!.startsWith('*') && !texts[4]!.startsWith('*');
  const isDay = (day: Date) => {
    if (!monthNumbers.has(day.getUTCMonth() + 1)) return false;
    const matches = [days.has(day.getUTCDate()), dayNumbers.has(day.getUTCDay())];
    return oneSuffices ? matches.includes(true) : !matches.includes(false);
  };
  return { texts, times: times.sort((a, b) => a - b), isDay };
}

function parseField(text: string, field: Field): Set<number> | undefined {
  const isWeekday = field.names === weekdays;
  const values = new Set<number>();
  for (const item of text.split(',')) {
    const match = /^(?:(\*|\w+-\w+)(?:\/(\d{1,2}))?|\w+)$/.exec(item);
    const range = match?.[1] ?? `${item}-${item}`;
    const step = Number(match?.[2] ?? 1);
    const ends = range === '*' ? [field.min, field.max] : range.split('-').map(end => parseValue(end, field));
    const [first, end] = ends;
    if (!match || first === undefined || end === undefined) return undefined;
    // Sunday also ends a range: SAT-SUN.
    const last = isWeekday && end === 0 && first > 0 ? 7 : end;
    if (first > last || step < 1 || step > field.max) return undefined;
    for (let value = first; value <= last; value += step) values.add(isWeekday ? value % 7 : value);
  }
  return values;
}

/** A number, or a name of three letters. */
function parseValue(text: string, { min, max, names = [] }: Field): number | undefined {
  const named = names.findIndex(name => name.slice(0, 3).toLowerCase() === text.toLowerCase()) + min;
  const value = /^\d{1,2}$/.test(text) ? Number(text) : named;
  return value >= min && value <= max ? value : undefined;
}

export function checkCron(cron: string, now: number): 'invalid_format' | undefined {
  // A wall time and its instant differ by less than a day, so UTC can stand for every zone.
  const next = nextTime(cron, 'UTC', now);
  const limit = new Date(now);
  limit.setUTCFullYear(limit.getUTCFullYear() + MAX_WAIT_YEARS);
  return next === undefined || next > limit.getTime() ? 'invalid_format' : undefined;
}

/** Accepts names of the IANA time zone database, in any case. An offset such as +02:00 is not a name. */
export function checkTimeZone(zone: string): 'invalid_format' | undefined {
  if (!/^[A-Za-z][\w+/-]{0,63}$/.test(zone)) return 'invalid_format';
  try {
    periodAt(zone, 0);
    return undefined;
  } catch {
    // Temporal throws a RangeError for an unknown name.
    return 'invalid_format';
  }
}

/** The first time after `after`. Undefined if there is none, or if the expression or the zone is not valid. */
export function nextTime(cron: string, zone: string, after: number): number | undefined {
  return upcoming(cron, zone, after, 1)[0];
}

/** The last time from `from` to `to`, both included. Looks back step by step, because there may be many. */
export function lastTime(cron: string, zone: string, from: number, to: number): number | undefined {
  const expression = parse(cron);
  if (!expression || checkTimeZone(zone)) return undefined;
  for (let spanMs = DAY_MS; ; spanMs *= 4) {
    const start = Math.max(from, to - spanMs);
    let last: number | undefined;
    for (const time of timesOf(expression, zone, start - 1)) {
      if (time > to) break;
      last = time;
    }
    if (last !== undefined || start === from) return last;
  }
}

export function upcoming(cron: string, zone: string, after: number, count: number): number[] {
  const expression = parse(cron);
  if (!expression || checkTimeZone(zone)) return [];
  return timesOf(expression, zone, after).take(count).toArray();
}

/** A time in which the offset from UTC stays the same. Without an end or a start it is infinite. */
type Period = { start: number; end: number; offset: number; previousOffset: number };

/**
 * If clocks go forward, a wall time that they skip fires as much later as they skip. If they go back, a wall time that
 * comes twice fires the first time only; but if every hour or every n-th hour is asked for, it fires both times.
 */
function* timesOf(expression: Expression, zone: string, after: number): Generator<number, undefined> {
  const firesTwice = /^\*(\/\d+)?$/.test(expression.texts[1]!);
  let from = after + 1;
  for (let period = periodAt(zone, from); ; period = periodAt(zone, from)) {
    const { start, end, offset, previousOffset } = period;
    while (from < end) {
      const isRepeated = !firesTwice && from + offset < start + previousOffset;
      const wall = firstWall(expression, isRepeated ? start + previousOffset : from + offset);
      if (wall === Infinity) return;
      const skipped =
        from + previousOffset < start + offset ? firstWall(expression, from + previousOffset) : Infinity;
      const time = Math.min(wall - offset, skipped < start + offset ? skipped - previousOffset : Infinity);
      if (time >= end) break;
      yield time;
      from = time + 1;
    }
    from = end;
  }
}

/** The first wall time at or after `from`. Infinity if there is none. */
function firstWall({ times, isDay }: Expression, from: number): number {
  for (let day = from - (from % DAY_MS); day < from + HORIZON_MS; day += DAY_MS) {
    const time = isDay(new Date(day)) ? times.find(time => day + time >= from) : undefined;
    if (time !== undefined) return day + time;
  }
  return Infinity;
}

function periodAt(zone: string, time: number): Period {
  const zoned = Temporal.Instant.fromEpochMilliseconds(time).toZonedDateTimeISO(zone);
  const start = zoned.add({ milliseconds: 1 }).getTimeZoneTransition('previous');
  const offset = zoned.offsetNanoseconds / 1e6;
  return {
    start: start?.epochMilliseconds ?? -Infinity,
    end: zoned.getTimeZoneTransition('next')?.epochMilliseconds ?? Infinity,
    offset,
    previousOffset: start ? start.subtract({ milliseconds: 1 }).offsetNanoseconds / 1e6 : offset,
  };
}

/** "every day at 03:00". Undefined for an expression without a short description. */
export function describeCron(cron: string): string | undefined {
  const [minute, hour, day, month, weekday] = parse(cron)?.texts ?? [];
  if (!minute || !hour || !day || !month || !weekday) return undefined;
  const days = describeDays(day, month, weekday);
  const interval = describeInterval(minute, hour);
  if (days === undefined) return undefined;
  if (interval) return days === 'every day' ? interval : `${interval}, ${days}`;
  if (!/^\d+$/.test(minute) || !/^\d+(,\d+)*$/.test(hour)) return undefined;
  const times = hour.split(',').map(value => `${value.padStart(2, '0')}:${minute.padStart(2, '0')}`);
  return `${days} at ${joinWithAnd(times)}`;
}

function describeInterval(minute: string, hour: string): string | undefined {
  const everyHour = stepOf(hour, 24);
  if (everyHour === 1 && stepOf(minute, 60)) return plural(stepOf(minute, 60)!, 'minute');
  if (!everyHour || !/^\d+$/.test(minute)) return undefined;
  return `${plural(everyHour, 'hour')}${Number(minute) === 0 ? '' : ` at minute ${Number(minute)}`}`;
}

/** The step of a field such as `*` if it leaves equal intervals. */
function stepOf(field: string, size: number): number | undefined {
  const step = field === '*' ? 1 : Number(/^\*\/(\d+)$/.exec(field)?.[1]);
  return size % step === 0 ? step : undefined;
}

const plural = (count: number, unit: string) => (count === 1 ? `every ${unit}` : `every ${count} ${unit}s`);

function describeDays(day: string, month: string, weekday: string): string | undefined {
  if (weekday === '*' && day === '*' && month === '*') return 'every day';
  if (weekday === '*' && /^\d+$/.test(day)) {
    if (month === '*') return `on day ${Number(day)} of every month`;
    const name = nameOf(month, 3);
    return name && `every year on ${Number(day)} ${name}`;
  }
  if (day !== '*' || month !== '*') return undefined;
  const range = weekday.split('-').map(value => nameOf(value, 4));
  if (range.length === 2 && range[0] && range[1]) return `${range[0]} to ${range[1]}`;
  const names = weekday.split(',').map(value => nameOf(value, 4));
  return names.every(name => name !== undefined) ? `every ${joinWithAnd(names)}` : undefined;
}

/** The full name of a month or a weekday. */
function nameOf(value: string, index: number): string | undefined {
  const { min, names = [] } = fields[index]!;
  const number = parseValue(value, fields[index]!);
  return number === undefined ? undefined : names[(number - min) % names.length];
}

const joinWithAnd = (values: string[]) => values.join(', ').replace(/, ([^,]*)$/, ' and $1');
