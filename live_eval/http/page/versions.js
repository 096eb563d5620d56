// Policy versions and syncs that never became one, newest first.
import { h } from './dom.js';
import { bytes, clock, duration, score } from './format.js';
import { icon } from './icons.js';
import { badge, digest, jobHref, segments } from './parts.js';
import { listView } from './list_view.js';
import { table } from './table.js';
import { reasonWord } from './words.js';

const FILTERS = [[null, 'All'], ['sealed', 'sealed'], ['collected', 'collected'], ['discarded', 'discarded']];
const WORDS = { sealed: 'Sealed', collected: 'Collected', discarded: 'Discarded' };

export function versionsView(model) {
  const rows = table({ caption: 'Policy versions and syncs', key: (each) => `${each.policy_version}/${each.weight_version}/${each.began_at}/${each.ended_at}`, columns: COLUMNS });
  const filters = h('div', { class: 'filters' }, segments('State', FILTERS.map(([value, word]) => (value ? [value, icon(value), WORDS[word]] : [value, word])), null, (value) => view.change({ state: value })));
  const view = listView(model, {
    title: 'Versions',
    path: 'versions',
    filters,
    rows,
    parameters: {},
    changes: ['versions', 'results'],
    none: 'No sync has come yet. Each sync of the trainer appears here, whole ones as a version and others with the reason.',
  });
  return view;
}

const nameOf = (each) => (each.policy_version === null ? `weight version ${each.weight_version}` : `v${each.policy_version}`);

const COLUMNS = [
  { name: 'Version', cls: 'lead', value: (each) => [nameOf(each), each.is_stable], cell: (each) => [h('strong', {}, nameOf(each)), ' ', each.is_stable && h('span', { class: 'badge live' }, icon('pinned'), 'Stable')] },
  { name: 'State', cls: 'lead right', value: (each) => each.state, cell: (each) => badge(each.state) },
  { name: 'Scores', cls: 'wide', value: (each) => (Object.keys(each.scores).length || each.jobs.length ? [each.scores, each.jobs] : ''), cell: scores },
  { name: 'Digest', cls: '', value: (each) => (each.digest || each.same_as ? [each.digest, each.same_as] : ''), cell: (each) => [digest(each.digest), each.same_as !== null && h('div', { class: 'note-warn small' }, icon('warning'), `same bytes as v${each.same_as}`)] },
  { name: 'Train step', cls: 'num', value: (each) => (each.train_step === null ? '' : [each.train_step, each.rollout_id]), cell: (each) => [each.train_step.toLocaleString('en'), each.rollout_id !== null && h('div', { class: 'muted small nowrap' }, `rollout ${each.rollout_id}`)] },
  { name: 'Size', cls: 'num', value: (each) => each.num_bytes || '', cell: (each) => [h('span', { class: 'nowrap' }, bytes(each.num_bytes)), h('div', { class: 'muted small nowrap' }, `${each.num_tensors} tensors`)] },
  { name: 'Sync', cls: '', value: (each) => [each.began_at, each.sealed_at, each.ended_at], cell: (each) => [h('span', { class: 'nowrap' }, clock(each.began_at || each.ended_at)), each.sealed_at !== null && h('div', { class: 'muted small nowrap' }, `in ${duration(each.sealed_at - each.began_at)}`)] },
  { name: 'Kept for', cls: '', value: (each) => (each.pins.length ? each.pins : ''), cell: (each) => h('span', { class: 'small' }, each.pins.map((pin) => `${pin.kind} (${pin.owner})`).join(', ')) },
  { name: 'Why', cls: 'wide', value: (each) => (each.reason || each.detail ? [each.reason, each.detail] : ''), cell: (each) => [reasonWord(each.reason), each.detail && h('div', { class: 'muted small' }, each.detail)] },
];

function scores(each) {
  const scored = Object.entries(each.scores).map(([dataset, value]) => h('div', {}, h('a', { href: jobHref(`v${each.policy_version}/${dataset}`) }, dataset), ' ', h('strong', {}, score(value))));
  const others = each.jobs.filter((id) => !(id.slice(id.indexOf('/') + 1) in each.scores)).map((id) => h('div', {}, h('a', { href: jobHref(id) }, id.slice(id.indexOf('/') + 1)), h('span', { class: 'muted' }, ' no score')));
  return [...scored, ...others];
}
