// One job: how it went, what it measured, and its samples.
import { get, jobPath } from './api.js';
import { h, put, slot } from './dom.js';
import { clock, duration, interval, plural, score, targetName } from './format.js';
import { icon } from './icons.js';
import { cancelButton } from './cancel.js';
import { badge, card, changeText, compareHref, hasScore, meter, trouble, whyOf } from './parts.js';
import { change } from './model.js';
import { samplesPanel } from './samples.js';
import { isEnded, methodWord, reasonWord, stateWord } from './words.js';

const AGAIN_MS = 500;

/** pass@2 before pass@16. */
const byNumber = new Intl.Collator('en', { numeric: true }).compare;

export function jobView(model, { rest: jobId }) {
  const head = h('div', { class: 'view-head' });
  const body = h('div', { class: 'stack' });
  const node = h('div', { class: 'stack' }, head, body);
  const samples = samplesPanel(model, jobId);
  const state = h('div', { class: 'split' });
  let left = false;
  let number = 0;
  let timer = null;
  let asked = 0;

  async function load() {
    const mine = ++number;
    timer = null;
    asked = Date.now();
    try {
      const job = await get(`jobs/${jobPath(jobId)}`);
      if (!left && mine === number) draw(job);
    } catch (error) {
      if (!left && mine === number) put(head, h('h1', {}, jobId)), put(body, trouble(error), h('p', {}, h('a', { href: '#/jobs' }, 'All jobs')));
    }
  }
  const drawHead = slot(head, (_, job) => [
    h('h1', {}, `${targetName(job)} on ${job.dataset}`),
    badge(job.status),
    job.protected && h('span', { class: 'badge' }, icon('protected'), 'Protected'),
    h('div', { class: 'end' }, compareLink(model, job), cancelButton(model, job)),
  ]);
  const drawState = slot(state, (_, job) => [outcome(job), course(job)]);

  function draw(job) {
    drawHead([job.status, job.protected, model.points(job.dataset, job.kind).length], job);
    drawState([job.status, job.result, job.transitions, job.num_done, job.estimate], job);
    if (!state.isConnected) put(body, state, samples.node);
    samples.show(job);
  }

  return {
    node,
    update(changed) {
      if (changed.has('all')) load();
      else if (changed.has(`job:${jobId}`)) timer ??= setTimeout(load, Math.max(0, asked + AGAIN_MS - Date.now()));
    },
    leave: () => ((left = true), clearTimeout(timer), samples.leave()),
  };
}

/** To the newest earlier target that has samples of the same dataset. */
function compareLink(model, job) {
  const points = model.points(job.dataset, job.kind).filter((point) => point.hasSamples);
  const at = points.findIndex((point) => point.jobId === job.job_id);
  const before = at > 0 ? points[at - 1] : null;
  return before && h('a', { class: 'button', href: compareHref(before.jobId, job.job_id) }, `Compare with ${before.target}`);
}

function outcome(job) {
  const { result } = job;
  const lines = [
    whyOf(job) && ['Why', [whyOf(job)]],
    job.detail && ['Detail', [job.detail]],
    result && ['Samples', [`${result.n_scored} of ${result.n_expected} scored`, result.n_errored > 0 && `, ${result.n_errored} errored`, result.n_aborted > 0 && `, ${result.n_aborted} aborted`]],
    ...[['vs_previous', 'To the one before'], ['vs_best', 'To the best before']].map(([name, word]) => {
      const found = result && change(result.metrics, name);
      return found && [word, [changeText(found)]];
    }),
    result?.weight_digest && ['Weights', [h('code', {}, result.weight_digest)]],
    job.checkpoint && ['Checkpoint', [h('code', {}, job.checkpoint)]],
    job.train_step !== null && ['Train step', [`${job.train_step}${job.rollout_id === null ? '' : `, rollout ${job.rollout_id}`}`]],
    result?.engine_versions.length > 0 && ['Engine labels', [result.engine_versions.join(', ')]],
    job.priority !== 0 && ['Priority', [String(job.priority)]],
  ].filter(Boolean);
  return card('Result', {
    body: [
      h('div', { class: 'card-body stack' }, headline(job), h('dl', { class: 'pairs' }, lines.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]))),
      result && metricTable(result.metrics, 'Metrics'),
      result && Object.keys(result.partial).length > 0 && [
        h('p', { class: 'card-body note-warn small' }, icon('warning'), 'Measured before the end. This is not a score of the version.'),
        metricTable(result.partial, 'Measured before the end'),
      ],
    ].flat(),
  });
}

function headline(job) {
  if (job.status === 'running')
    return h('div', { class: 'field' }, meter(job.num_done, job.num_expected), h('span', { class: 'muted' }, `${job.num_done} of ${job.num_expected} samples`, hasScore(job.estimate) && `. So far ${score(job.estimate.score)} (95 %: ${interval(job.estimate)})`));
  if (job.status !== 'succeeded') return h('p', { class: 'muted' }, isEnded(job.status) ? 'It has no score.' : 'It waits for its turn.');
  return h('p', {}, h('strong', { class: 'headline' }, score(job.score)), ' ', h('span', { class: 'muted' }, job.interval ? `95 % interval ${interval(job.interval)}${job.interval.method ? ` (${methodWord(job.interval.method)})` : ''}` : 'no interval known'));
}

function metricTable(metrics, caption) {
  const names = Object.keys(metrics).filter((name) => !/^vs_(previous|best)\//.test(name)).sort(byNumber);
  if (names.length === 0) return null;
  return h('table', { role: 'table' }, h('caption', { class: 'hidden-text' }, caption), h('tbody', { role: 'rowgroup' }, names.map((name) =>
    h('tr', { role: 'row' }, h('td', { role: 'cell' }, h('code', {}, name)), h('td', { role: 'cell', class: 'num' }, h('strong', {}, score(metrics[name].value)), metrics[name].interval && h('span', { class: 'muted small' }, ` ${interval(metrics[name].interval)}`))))));
}

function course(job) {
  const steps = job.transitions.map((step, at) => {
    const before = job.transitions[at - 1];
    return h('li', {},
      h('span', {}, badge(step.to_status), ' ', h('span', { class: 'muted' }, reasonWord(step.reason), step.attempt > 1 ? ` attempt ${step.attempt}` : '')),
      h('span', { class: 'muted small nowrap' }, clock(step.at)),
      before && h('span', { class: 'wide small muted' }, `${duration(step.at - before.at)} after ${stateWord(before.to_status).toLowerCase()}`));
  });
  const attempts = job.attempts.length;
  return card('Course', { end: h('span', { class: 'muted small' }, plural(attempts, 'attempt')), body: h('ol', { class: 'rows' }, steps) });
}
