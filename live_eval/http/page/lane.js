// Syncs, waiting evaluations, loads and evals on one axis of time, with a line for each engine: one sees a
// version finish, be cancelled, be passed over or wait its turn.
import { get } from './api.js';
import { h, put, s } from './dom.js';
import { clock } from './format.js';
import { jobHref, segments } from './parts.js';
import { keys, onWidth, pointing } from './plot.js';
import { drawLane, patterns } from './lane_draw.js';
import { describe, evaluations, laneRows } from './lane_rows.js';
import { legend } from './lane_legend.js';

const WINDOWS = [['fit', 'Run'], [120, '2 min'], [600, '10 min'], [3600, '1 h'], [21600, '6 h'], [86400, '24 h']];
const LONGEST_FIT_S = 6 * 3600;
const AGAIN_MS = 1000;

export function lanePanel(model) {
  const svg = s('svg', { class: 'plot lane', role: 'img', tabindex: '0' });
  const readout = h('div', { class: 'readout', 'aria-live': 'polite' });
  const list = h('div', {});
  const back = h('button', { type: 'button', class: 'button small', onclick: () => shift(-0.5) }, 'Earlier');
  const forth = h('button', { type: 'button', class: 'button small', onclick: () => shift(0.5) }, 'Later');
  const nowButton = h('button', { type: 'button', class: 'button small', onclick: () => ((until = null), fetchSoon(0)) }, 'Now');
  const details = h('details', { class: 'as-list', ontoggle: () => listAll() }, h('summary', {}, 'The same as a list'), list);
  const node = h('section', { class: 'card', 'aria-labelledby': 'lane-title' },
    h('div', { class: 'card-head' }, h('h2', { id: 'lane-title' }, 'Time lane'),
      h('div', { class: 'end' }, segments('Window', WINDOWS, 'fit', (value) => ((span = value), (until = null), fetchSoon(0))), back, forth, nowButton)),
    h('div', { class: 'lane-scroll' }, svg), readout, legend(), details);
  let span = 'fit';
  let until = null; // null: it follows the time
  let lane = null;
  let rows = null;
  let width = 0;
  let chosen = null;
  let timer = null;
  let asked = 0;
  let failure = null;

  const shown = () => {
    const end = until ?? model.now();
    if (span !== 'fit') return [end - span, end];
    const began = lane ? earliest(lane) : null;
    return [Math.max(end - LONGEST_FIT_S, Math.min(began ?? end - 60, end - 20)), end];
  };

  function shift(share) {
    const [from, to] = shown();
    const moved = to + share * (to - from);
    if (span === 'fit') span = to - from;
    until = moved >= model.now() ? null : moved;
    fetchSoon(0);
  }

  function fetchSoon(delay = AGAIN_MS) {
    if (timer !== null && delay > 0) return;
    clearTimeout(timer);
    timer = setTimeout(load, Math.max(delay, delay ? asked + AGAIN_MS - Date.now() : 0));
  }

  async function load() {
    timer = null;
    asked = Date.now();
    const end = until ?? model.now();
    try {
      const since = span === 'fit' ? end - LONGEST_FIT_S : end - span;
      lane = await get('lane', { since, until: until ?? null });
      failure = null;
    } catch (error) {
      failure = error;
    }
    draw();
    listAll();
  }

  function draw() {
    if (width === 0) return;
    const [from, to] = shown();
    rows = lane ? laneRows(lane, model.engines, to) : null;
    const height = drawLane(svg, { rows, from, to, width, chosen, live: until === null, now: model.now() });
    svg.setAttribute('height', height);
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.prepend(patterns());
    nowButton.disabled = until === null;
    forth.disabled = until === null;
    const names = lane ? evaluations(lane) : [];
    svg.setAttribute('aria-label', `Time lane from ${clock(from)} to ${clock(to)}: ${names.length} evaluations. Arrow keys go from one to the next, Enter opens it. The same is in the list below.`);
    say();
  }

  function say(part) {
    if (failure) return put(readout, `The lane cannot be read: ${failure.message}`);
    if (part) return put(readout, describe(part, lane));
    if (chosen && lane) return put(readout, describe({ target: chosen }, lane));
    if (lane?.cut) return put(readout, 'Older spans are left out: choose a shorter window.');
    put(readout, lane && lane.syncs.length + lane.jobs.length === 0 ? 'Nothing happened in this window yet.' : 'Point at a span, or use the arrow keys, to follow one version through the lane.');
  }

  function listAll() {
    if (!details.open || !lane) return;
    const names = evaluations(lane).slice(-100).reverse();
    put(list, h('ul', { class: 'rows' }, names.map((target) => h('li', {}, h('span', { class: 'wide small' }, describe({ target }, lane))))));
  }

  const leave = () => chosen !== null && ((chosen = null), draw());
  pointing(svg, {
    find: (event) => event.target.closest?.('[data-part]')?.part ?? null,
    move(part) {
      const target = part?.target ?? null;
      const other = target !== chosen;
      chosen = target;
      if (other) draw();
      say(part);
      return other;
    },
    open: (part) => (part || chosen) && open(part?.jobId ? part : { target: part?.target ?? chosen }),
  });
  svg.addEventListener('blur', leave);
  svg.addEventListener('keydown', (event) => {
    if (!lane) return;
    const names = evaluations(lane);
    keys(event, {
      index: names.indexOf(chosen),
      count: names.length,
      move: (at) => ((chosen = names[at] ?? null), draw()),
      open: (at) => open({ target: names[at] }),
    });
  });

  function open({ target, jobId }) {
    const id = jobId ?? lane.jobs.find((job) => job.target === target)?.job_id;
    if (id) location.hash = jobHref(id);
  }

  const ends = [onWidth(svg, (now) => ((width = now), draw()))];
  const ticking = setInterval(() => until === null && model.connection.state === 'open' && chosen === null && !document.hidden && draw(), 1000);
  const reading = setInterval(() => until === null && model.loaded && fetchSoon(), 15000);
  load();
  return {
    node,
    update: (changed) => (changed.has('lane') || changed.has('engines')) && until === null && model.loaded && fetchSoon(),
    leave: () => (ends.forEach((end) => end()), clearInterval(ticking), clearInterval(reading), clearTimeout(timer)),
  };
}

/** When the first thing in the lane began, with a little room before it. */
function earliest({ syncs, engines, jobs }) {
  let first = Infinity;
  for (const each of syncs) first = Math.min(first, each.begin);
  for (const each of jobs) first = Math.min(first, each.requested ?? each.begin);
  if (first === Infinity) for (const engine of engines) for (const each of engine.spans) first = Math.min(first, each.begin);
  return first === Infinity ? null : first - 2;
}
