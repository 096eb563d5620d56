// Numbers, times and sizes as people read them.

export const MINUS = '−';

export function score(value, digits = 3) {
  return value === null || value === undefined ? '–' : signless(value.toFixed(digits));
}

export function signed(value, digits = 3) {
  if (value === null || value === undefined) return '–';
  return (value > 0 ? '+' : '') + signless(value.toFixed(digits));
}

const signless = (text) => (Number(text) === 0 ? text.replace('-', '') : text.replace('-', MINUS));

export function interval(range, digits = 3) {
  return range ? `${score(range.low, digits)} to ${score(range.high, digits)}` : 'no interval';
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 0) return '0 s';
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, '0')} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, '0')} min`;
  return `${Math.round(minutes / 1440)} days`;
}

export function ago(seconds) {
  if (seconds < 1.5) return 'now';
  return `${seconds < 60 ? `${Math.round(seconds)} s` : duration(seconds)} ago`;
}

export function bytes(count) {
  if (count === null || count === undefined) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let value = count;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.5 ? Math.round(value) : value.toPrecision(value < 9.95 ? 2 : 3)} ${units[unit]}`;
}

const pad = (number) => String(number).padStart(2, '0');

/** Wall clock of this browser; with the day where it is not today. */
export function clock(at, { seconds = true } = {}) {
  if (at === null || at === undefined) return '–';
  const date = new Date(at * 1000);
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}${seconds ? `:${pad(date.getSeconds())}` : ''}`;
  return date.toDateString() === new Date().toDateString() ? time : `${day(date)} ${time}`;
}

const day = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString('en')} ${count === 1 ? one : many}`;

export const shortDigest = (digest) => (digest ? digest.slice(0, 10) : '–');

/** The last part of a checkpoint's path. */
export const pathName = (path) => path?.split('/').filter(Boolean).pop() ?? '';

/** Where a job or result stands in a picture: its policy version, or its checkpoint's number. */
export const placeOf = ({ policy_version: version, target }) => version ?? Number(/\d+/.exec(target ?? '')?.[0] ?? 0);

/** What a job is about: "v7" or "c1 step_200". */
export const targetName = (job) =>
  job.checkpoint_name ? `${job.target} ${job.checkpoint_name}` : (job.target ?? job.job_id);
