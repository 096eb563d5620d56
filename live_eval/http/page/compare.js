// Two targets on one dataset, sample by sample: what got better, what got worse, and whether that says anything.
import { get } from './api.js';
import { h, put } from './dom.js';
import { interval, signed } from './format.js';
import { icon } from './icons.js';
import { diff } from './diff.js';
import { card, compareHref, empty, jobLink, segments, trouble } from './parts.js';
import { cutNote, isMany, isShort, labelText, labelled, metaOf, nameOf, text, thresholdOf, verdict, visible } from './samples.js';
import { pager } from './table.js';
import { methodWord } from './words.js';

const LIMIT = 20;
const MOST_CHOICES = 1000;
const CHANGES = { better: 'Better', worse: 'Worse', same: 'Same', unpaired: 'Unpaired' };

export function compareView(model, { query }) {
  const body = h('div', { class: 'stack' });
  const choice = h('div', { class: 'filters' });
  const node = h('div', { class: 'stack' }, h('div', { class: 'view-head' }, h('h1', {}, 'Compare')), h('section', { class: 'card', 'aria-label': 'What is compared' }, choice), body);
  const chosen = { left: query.get('left'), right: query.get('right'), dataset: null, kind: 'live' };
  let change = null;
  let offset = 0;
  let number = 0;
  let left = false;
  let drawn = '';

  function drawChoice() {
    const names = model.datasetNames();
    const of = chosen.right ?? chosen.left;
    chosen.dataset ??= of ? of.slice(of.indexOf('/') + 1) : (names.find((name) => choices(name).length > 1) ?? names[0] ?? null);
    const jobs = chosen.dataset === null ? [] : choices(chosen.dataset);
    if (!chosen.right && jobs.length > 1) Object.assign(chosen, { left: jobs.at(-2).jobId, right: jobs.at(-1).jobId });
    const key = JSON.stringify([names, jobs.length, jobs.at(-1)?.jobId, chosen]);
    if (key === drawn) return false;
    drawn = key;
    put(choice, pick('Dataset', names.map((name) => [name, name]), chosen.dataset, (value) => ((chosen.dataset = value), (chosen.left = chosen.right = null), drawChoice() && go())),
      pick('Before', options(jobs, chosen.left), chosen.left, (value) => ((chosen.left = value), go())),
      pick('After', options(jobs, chosen.right), chosen.right, (value) => ((chosen.right = value), go())),
      h('button', { type: 'button', class: 'button small', 'data-focus': 'swap', onclick: () => (([chosen.left, chosen.right] = [chosen.right, chosen.left]), go()) }, 'Swap'));
    return true;
  }

  const choices = (dataset) => [...model.points(dataset, 'checkpoint'), ...model.points(dataset, 'live')].filter((point) => point.hasSamples).slice(-MOST_CHOICES);

  function options(jobs, current) {
    const found = jobs.map((point) => [point.jobId, `${point.target}${point.name ? ` ${point.name}` : ''}`]).reverse();
    return current && !found.some(([id]) => id === current) ? [[current, current], ...found] : found;
  }

  function go() {
    offset = 0;
    if (chosen.left && chosen.right) history.replaceState(null, '', compareHref(chosen.left, chosen.right));
    drawChoice();
    load();
  }

  async function load() {
    if (!chosen.left || !chosen.right)
      return put(body, card('', { body: empty(model.loaded ? 'Two versions with samples on one dataset are needed. They are here when two evaluations have ended.' : 'Reading.') }));
    const mine = ++number;
    try {
      const found = await get('compare', { left: chosen.left, right: chosen.right, change, offset, limit: LIMIT });
      if (!left && mine === number) draw(found);
    } catch (error) {
      if (!left && mine === number) put(body, trouble(error));
    }
  }

  function draw(found) {
    const names = [found.left, found.right].map((id) => id.slice(0, id.indexOf('/')));
    const threshold = thresholdOf(model, found.dataset);
    const many = isMany(model, found.dataset);
    const filter = segments('Which samples', [[null, 'All'], ...Object.entries(CHANGES).filter(([name]) => name !== 'unpaired' || found.summary.unpaired > 0).map(([name, word]) => [name, icon(name), word])], change, (value) => ((change = value), (offset = 0), load()));
    const pages = pager((by) => ((offset = Math.max(0, offset + by * LIMIT)), load(), scrollTo(0, 0)), ['Previous', 'Next']);
    pages.show({ total: found.total, offset, count: found.items.length });
    put(body, summaryCard(found, names), h('section', { class: 'card', 'aria-label': 'Samples side by side' },
      h('div', { class: 'filters' }, filter), found.items.length ? found.items.map((item) => pairCard(item, names, threshold, many)) : empty('No sample of this kind.'), pages.node));
  }

  return {
    node,
    update(changed) {
      if (changed.has('all') || changed.has('results')) drawChoice() && (changed.has('all') || !body.querySelector('.sample')) && load();
      if (changed.has('all') && !chosen.right) load();
    },
    leave: () => (left = true),
  };
}

const pick = (name, choices, value, onPick) => {
  const select = h('select', { 'data-focus': name, 'aria-label': name, onchange: () => onPick(select.value) }, choices.map(([id, word]) => h('option', { value: id }, word)));
  select.value = value ?? '';
  return h('label', { class: 'inline-field' }, name, select);
};

function summaryCard({ summary, left, right, dataset }, [before, after]) {
  const { difference, interval: between } = summary;
  const sure = between && (between.low > 0 || between.high < 0);
  const says = difference === null ? 'No sample was scored by both.'
    : summary.same === summary.paired ? 'No sample got better or worse.'
    : !between ? 'Too few pairs for an interval.'
    : sure ? `The interval leaves 0 out: ${after} is ${difference > 0 ? 'better' : 'worse'} than ${before} on this dataset.`
    : 'The interval includes 0: this may be chance.';
  const cell = (name) => h('div', {}, h('span', { class: 'muted small' }, icon(name), ` ${CHANGES[name]}`), h('div', { class: 'value' }, summary[name].toLocaleString('en')));
  return h('section', { class: 'card', 'aria-label': 'Difference' },
    h('div', { class: 'card-head' }, h('h2', {}, jobLink(left, before), ' to ', jobLink(right, after), ` on ${dataset}`)),
    h('div', { class: 'card-body stack' },
      h('p', {}, h('strong', { class: 'headline' }, signed(difference)), ' ', h('span', { class: 'muted' }, between ? `95 % interval ${interval(between)} (${[methodWord(between.method), `${summary.paired} pairs`].filter(Boolean).join(', ')})` : `${summary.paired} pairs`), h('br'), says),
      h('div', { class: 'tally' }, cell('better'), cell('worse'), cell('same'), cell('unpaired'))));
}

function pairCard(item, names, threshold, many) {
  const texts = [item.left?.response ?? null, item.right?.response ?? null];
  const equal = texts[0] !== null && texts[0] === texts[1];
  const parts = texts[0] !== null && texts[1] !== null && !equal ? diff(...texts) : null;
  return h('article', { class: 'sample', 'data-row': item.row_id },
    h('div', { class: 'sample-head' }, nameOf(item, many), h('span', { class: 'badge' }, icon(item.change), CHANGES[item.change] ?? item.change), equal && h('span', {}, 'same answer')),
    h('div', { class: `texts ${isShort(item, ...texts) ? 'four' : ''}` },
      labelled('Prompt', text(item.prompt ?? '', 'prompt')), labelled('Expected', text(labelText(item.label), 'prompt')),
      [item.left, item.right].map((sample, at) => side(sample, names[at], parts?.[at], at, threshold, !isShort(item, ...texts)))));
}

function side(sample, name, parts, at, threshold, full) {
  const tag = at === 0 ? 'del' : 'ins';
  const content = !sample ? h('p', { class: 'text muted' }, 'no such sample')
    : sample.response === null ? h('p', { class: 'text muted' }, sample.error || 'no answer')
    : parts ? h('p', { class: 'text', dir: 'auto' }, parts.map(([kind, each]) => (kind === 'same' ? visible(each) : h(tag, {}, visible(each)))))
    : text(sample.response);
  return h('div', { class: 'side', title: sample ? metaOf(sample) : null },
    h('div', { class: 'side-head' }, h('strong', {}, name), verdict(sample, threshold), sample && full && h('span', { class: 'end' }, metaOf(sample), cutNote(sample, 'response'))), content);
}
