// Small pieces that several views share.
import { h, s } from './dom.js';
import { bytes, clock, duration, interval, score, shortDigest, signed } from './format.js';
import { icon } from './icons.js';
import { isEnded, reasonWord, stateKind, stateWord } from './words.js';

/** A state as icon, word and colour. */
export const badge = (state, word = stateWord(state)) => h('span', { class: `badge ${stateKind(state)}` }, icon(state), word);

export const card = (title, { end = [], body = [], ...rest } = {}) =>
  h('section', { class: 'card', ...rest }, title && h('div', { class: 'card-head' }, h('h2', {}, title), h('div', { class: 'end' }, end)), body);

export const empty = (text) => h('p', { class: 'empty' }, text);

export const jobHref = (jobId) => `#/job/${encodeURIComponent(jobId)}`;
export const compareHref = (left, right) => `#/compare?${new URLSearchParams({ left, right })}`;

export const jobLink = (jobId, text = jobId) => h('a', { class: 'target', href: jobHref(jobId), 'data-focus': `job ${jobId}` }, text);

/** The bytes of a version by name; the whole of it in the title. */
export const digest = (text) => h('code', { class: 'nowrap', title: text || 'no digest yet' }, shortDigest(text));

export const size = bytes;

/** How far a job is, as a bar and numbers. */
export function meter(done, expected) {
  const share = expected > 0 ? Math.min(1, done / expected) : 0;
  const bar = h('i');
  bar.style.width = `${(share * 100).toFixed(1)}%`; // a property, which the content security policy allows
  return h('span', { class: 'meter', role: 'progressbar', 'aria-valuemin': 0, 'aria-valuemax': expected, 'aria-valuenow': done, 'aria-label': 'samples done' }, bar);
}

/** A score between 0 and 1 with its interval, as a small picture; nothing for other scales. */
export function range(value, between) {
  if (value === null || !between || value < 0 || value > 1) return null;
  const at = (x) => 2 + 80 * Math.max(0, Math.min(1, x));
  return s('svg', { class: 'range', viewBox: '0 0 84 16', 'aria-hidden': 'true' },
    s('line', { class: 'axis', x1: 2, x2: 82, y1: 8, y2: 8 }),
    s('line', { class: 'whisker', x1: at(between.low), x2: at(between.high), y1: 8, y2: 8 }),
    s('circle', { class: 'dot', cx: at(value), cy: 8, r: 3.5 }));
}

/** Whether samples have been scored yet. */
export const hasScore = (estimate) => estimate?.score !== null && estimate?.score !== undefined;

/** What a job says for its score: the score, how far it is, or nothing. */
export function scoreCell(job) {
  if (job.status === 'succeeded')
    return [h('strong', {}, score(job.score)), ' ', h('span', { class: 'muted small nowrap' }, interval(job.interval))];
  if (job.status !== 'running') return '–';
  const { estimate } = job;
  return h('span', { class: 'field' },
    meter(job.num_done, job.num_expected),
    h('span', { class: 'muted small' }, `${job.num_done} of ${job.num_expected}`, hasScore(estimate) && `, so far ${score(estimate.score)}`));
}

/** "+0.031 to v9 (−0.050 to 0.110: may be chance)". */
export function changeText({ version, value, low, high }) {
  const known = low !== null && high !== null;
  return `${signed(value)} to v${version}${known ? ` (${interval({ low, high })}${low <= 0 && high >= 0 ? ': may be chance' : ''})` : ''}`;
}

/** Why it is as it is, for people. */
export const whyOf = (job) => [reasonWord(job.reason), job.protected && !isEnded(job.status) && 'protected from newer versions'].filter(Boolean).join(', ');

/** When and how long. */
export const timesOf = (job) =>
  job.started_at === null ? clock(job.requested_at) : `${clock(job.started_at)}, ${duration(job.duration_s ?? (job.finished_at ? job.finished_at - job.started_at : null))}`;

/** An error as it is shown in dialogs and views. */
export function trouble(error) {
  return h('div', { class: 'trouble', role: 'alert' },
    h('strong', {}, icon('failed'), error.message),
    error.value !== null && error.value !== undefined && typeof error.value !== 'object' && h('code', {}, String(error.value)),
    error.whatToDo && h('span', {}, error.whatToDo));
}

/** Buttons of which one is pressed. */
export function segments(label, choices, chosen, onChoose) {
  const buttons = choices.map(([value, ...content]) =>
    h('button', { type: 'button', 'aria-pressed': String(value === chosen), 'data-focus': `${label} ${value}`, onclick: () => choose(value) }, ...content));
  function choose(value) {
    buttons.forEach((button, at) => button.setAttribute('aria-pressed', String(choices[at][0] === value)));
    onChoose(value);
  }
  return h('div', { class: 'segments scroll', role: 'group', 'aria-label': label }, buttons);
}
