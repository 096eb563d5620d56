// All jobs, newest first, with the reason of each end.
import { h } from './dom.js';
import { clock, duration, targetName } from './format.js';
import { icon } from './icons.js';
import { cancelButton } from './cancel.js';
import { badge, jobLink, range, scoreCell, segments, whyOf } from './parts.js';
import { table } from './table.js';
import { listView } from './list_view.js';

const ENDED = ['failed', 'timed_out', 'cancelled', 'superseded', 'dropped'];
const FILTERS = [
  [null, 'All'],
  ['running,waiting', icon('running'), 'Running, waiting'],
  ['succeeded', icon('succeeded'), 'Succeeded'],
  [ENDED.join(','), icon('cancelled'), 'Without a score'],
];

export function jobsView(model, { query }) {
  const rows = table({ caption: 'Jobs', key: (job) => job.job_id, columns: columns(model) });
  const dataset = h('select', { 'aria-label': 'Dataset', onchange: () => view.change({ dataset: dataset.value }) }, h('option', { value: '' }, 'All datasets'));
  const kind = h('select', { 'aria-label': 'Kind', onchange: () => view.change({ kind: kind.value }) },
    h('option', { value: '' }, 'Versions and checkpoints'), h('option', { value: 'live' }, 'Policy versions'), h('option', { value: 'checkpoint' }, 'Checkpoints'));
  const chosen = query.get('status');
  const filters = h('div', { class: 'filters' }, segments('State', FILTERS.map(([value, ...content]) => [value, ...content.map((each) => each.cloneNode?.(true) ?? each)]), chosen, (value) => view.change({ status: listOf(value) })), dataset, kind);
  const view = listView(model, {
    title: 'Jobs',
    path: 'jobs',
    filters,
    rows,
    parameters: { status: listOf(chosen) },
    changes: ['jobs', 'results'],
    merge: (items) => items.map((job) => model.active.get(job.job_id) ?? job),
    mergeOn: 'progress',
    none: 'No job fits. Jobs appear when a version is due or a checkpoint is asked for.',
  });
  const names = model.datasetNames();
  dataset.append(...names.map((name) => h('option', { value: name }, name)));
  return view;
}

const listOf = (text) => text?.split(',') ?? null;

/** That a job with a score was completed goes without saying. */
const why = (job) => (job.status === 'succeeded' ? '' : whyOf(job));

const columns = (model) => [
  { name: 'Job', cls: 'lead', value: (job) => job.job_id, cell: (job) => [jobLink(job.job_id, targetName(job)), h('span', { class: 'muted' }, ` ${job.dataset}`)] },
  { name: 'State', cls: 'lead right', value: (job) => [job.status, job.protected], cell: (job) => badge(job.status) },
  { name: 'Score', cls: '', value: (job) => (job.status === 'running' || job.status === 'succeeded' ? [job.status, job.score, job.interval, job.num_done, job.estimate] : ''), cell: (job) => [scoreCell(job)].flat() },
  { name: '', cls: 'range-cell', value: (job) => (job.status === 'succeeded' && range(job.score, job.interval) ? [job.score, job.interval] : ''), cell: (job) => range(job.score, job.interval) ?? '' },
  { name: 'Why', cls: 'wide', value: (job) => why(job) || job.detail, cell: (job) => [why(job), job.detail && h('div', { class: 'muted small' }, job.detail)] },
  { name: 'Asked for', cls: '', value: (job) => clock(job.requested_at), cell: (job) => h('span', { class: 'nowrap' }, clock(job.requested_at)) },
  { name: 'Took', cls: 'num', value: (job) => (job.duration_s === null ? '' : [job.duration_s, job.attempt]), cell: (job) => [duration(job.duration_s), job.attempt > 1 && h('div', { class: 'muted small' }, `attempt ${job.attempt}`)] },
  { name: '', cls: 'num', value: (job) => (job.status === 'running' || job.status === 'waiting' ? job.status : ''), cell: (job) => cancelButton(model, job) ?? '' },
];
