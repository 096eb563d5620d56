// Samples of one job, page by page, and how a sample's texts and verdict are shown anywhere.
import { get } from './api.js';
import { h, put } from './dom.js';
import { plural } from './format.js';
import { icon } from './icons.js';
import { empty, segments, trouble } from './parts.js';
import { pager } from './table.js';

const LIMIT = 20;

export function samplesPanel(model, jobId) {
  const list = h('div', {});
  const pages = pager((by) => ((offset = Math.max(0, offset + by * LIMIT)), load()), ['Previous', 'Next']);
  let offset = 0;
  let status = null;
  let shown = null;
  let left = false;
  let number = 0;
  const filter = segments('Samples', [[null, 'All'], ['scored', 'Scored'], ['errored', 'Errored'], ['aborted', 'Aborted']], null, (value) => ((status = value), (offset = 0), load()));
  const node = h('section', { class: 'card', 'aria-label': 'Samples' }, h('div', { class: 'card-head' }, h('h2', {}, 'Samples'), h('div', { class: 'end' }, filter)), list, pages.node);

  async function load() {
    const mine = ++number;
    try {
      const page = await get('samples', { job_id: jobId, status, offset, limit: LIMIT });
      if (left || mine !== number) return;
      const limit = thresholdOf(model, shown.dataset);
      const many = isMany(model, shown.dataset);
      put(list, page.items.length ? page.items.map((sample) => sampleCard(sample, limit, many)) : empty(status ? 'No sample of this kind.' : 'No sample yet.'));
      pages.show({ total: page.total, offset, count: page.items.length });
    } catch (error) {
      if (left || mine !== number) return;
      put(list, error.code === 'no_samples' ? empty('This job has no samples: it never ran, or they are not written yet.') : h('div', { class: 'card-body' }, trouble(error)));
      pages.show({ total: 0, offset: 0, count: 0 });
    }
  }

  return {
    node,
    show(job) {
      const again = !shown || shown.status !== job.status || (offset === 0 && job.status === 'running' && shown.num_done < LIMIT);
      shown = job;
      if (again) load();
    },
    leave: () => (left = true),
  };
}

/** From which reward on an answer is right. */
export const thresholdOf = (model, dataset) => model.datasets.get(dataset)?.settings?.pass_threshold ?? 1;

/** Whether a row has several samples. */
export const isMany = (model, dataset) => (model.datasets.get(dataset)?.n ?? 1) > 1;

/** A sample's row, and its number where a row has several. */
export const nameOf = ({ row_id: row, sample }, many) => [h('strong', {}, `Row ${row}`), (many || sample > 0) && h('span', {}, `sample ${sample}`)];

/** Right, wrong or none, by shape and by word. */
export function verdict(sample, threshold) {
  if (!sample) return h('span', { class: 'badge' }, icon('none'), 'No sample');
  if (sample.status !== 'scored') return h('span', { class: 'badge warn' }, icon('warning'), sample.status === 'errored' ? 'Errored' : 'Aborted');
  const right = sample.reward >= threshold;
  const number = sample.reward === 1 || sample.reward === 0 ? '' : ` ${Number(sample.reward.toFixed(3))}`;
  return h('span', { class: `badge ${right ? 'good' : 'bad'}` }, icon(right ? 'right' : 'wrong'), `${right ? 'Right' : 'Wrong'}${number}`);
}

export const metaOf = (sample) =>
  [sample.finish_reason && `ended by ${sample.finish_reason}`, plural(sample.num_tokens, 'token'), sample.engine, sample.engine_label && `label ${sample.engine_label}`].filter(Boolean).join(', ');

function sampleCard(sample, threshold, many) {
  return h('article', { class: 'sample' },
    h('div', { class: 'sample-head' }, nameOf(sample, many), verdict(sample, threshold), h('span', {}, metaOf(sample))),
    sample.error && h('p', { class: 'note-bad small' }, icon('warning'), sample.error),
    h('div', { class: `texts ${isShort(sample, sample.response) ? 'three' : ''}` },
      labelled('Prompt', text(sample.prompt ?? '', 'prompt')), labelled('Expected', text(labelText(sample.label), 'prompt')),
      h('div', { class: isShort(sample, sample.response) ? '' : 'all' }, labelled(`Answer${cutNote(sample, 'response')}`, h('div', { class: 'side' }, sample.response === null ? h('p', { class: 'text muted' }, 'no answer') : text(sample.response))))));
}

const SHORT = 60;

/** Whether prompt, label and answers fit beside each other. */
export const isShort = ({ prompt, label }, ...answers) => [prompt ?? '', labelText(label), ...answers].every((each) => (each ?? '').length <= SHORT);

export const cutNote = (sample, name) => (sample.cut?.includes(name) ? ' (cut at 20,000 characters)' : '');
export const labelled = (name, content) => h('div', {}, h('div', { class: 'text-label' }, name), content);
export const labelText = (label) => (typeof label === 'string' ? label : label === null || label === undefined ? '' : JSON.stringify(label, null, 1));

/** A text of a model or a data file as it is; characters that would not be seen, or would turn others around, are named. */
export const text = (content, cls = '') => h('p', { class: `text ${cls}`, dir: 'auto', tabindex: content.length > 900 ? '0' : null }, visible(content));

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Text nodes, with each hidden character as a named box. */
export function visible(content) {
  const parts = [];
  let last = 0;
  for (const match of content.matchAll(HIDDEN)) {
    parts.push(content.slice(last, match.index), h('span', { class: 'ctl' }, `U+${match[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`));
    last = match.index + 1;
  }
  return [...parts, content.slice(last)];
}
