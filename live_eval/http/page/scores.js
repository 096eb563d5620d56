// Score by policy version of one dataset: intervals, the running eval's estimate, and how the others ended.
import { h, put, s } from './dom.js';
import { interval, score, signed } from './format.js';
import { mark } from './icons.js';
import { changeText, jobHref } from './parts.js';
import { keys, label, line, nearest, onWidth, pointing, scale, ticks } from './plot.js';
import { reasonWord, stateKind, stateWord } from './words.js';

const HEIGHT = 232;
const EDGE = { left: 44, right: 18, top: 14, bottom: 50 };
const DENSE = 150;

/** update({points, running, zoom, kind, loaded}): points and running jobs rise in x. */
export function scoreChart(dataset) {
  const svg = s('svg', { class: 'plot', role: 'img', tabindex: '0', height: HEIGHT });
  const which = h('span', { class: 'which' });
  const big = h('span', { class: 'big' });
  const between = h('span', { class: 'interval' });
  const foot = h('div', { class: 'chart-foot' });
  const spoken = h('span', { class: 'hidden-text', 'aria-live': 'polite' });
  const node = h('article', { class: 'card', 'data-dataset': dataset },
    h('div', { class: 'chart-head' }, h('h3', {}, dataset), which, big, between), h('div', { class: 'card-body' }, svg), foot, spoken);
  let width = 0;
  let data = { points: [], running: [], zoom: false, kind: 'live', loaded: false };
  let chosen = -1;
  let frame = null;

  const draw = () => {
    if (width === 0) return;
    frame = layout(data, width);
    svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute('aria-label', summary(dataset, data));
    svg.replaceChildren(...grid(frame), ...series(frame), ...strip(frame), ...frame.running.flatMap((job) => liveMark(frame, job)));
    cursor();
  };
  const cursor = () => {
    svg.querySelector('.cursor-part')?.remove();
    const point = data.points[chosen];
    if (point && frame) svg.append(cursorMark(frame, point));
    head(point);
  };
  const move = (index) => {
    if (index === chosen) return false;
    chosen = index;
    cursor();
    return true;
  };
  const find = (event) => (frame && data.points.length ? nearest(data.points, frame.x.back(event.clientX - svg.getBoundingClientRect().left)) : -1);
  const open = (index) => data.points[index] && (location.hash = jobHref(data.points[index].jobId));

  function head(point) {
    const scored = data.points.filter((each) => each.score !== null);
    const shown = point ?? scored.at(-1);
    which.textContent = shown ? `${named(shown)}${point ? '' : ', newest score'}` : '';
    big.textContent = shown ? (shown.score === null ? stateWord(shown.status) : score(shown.score)) : data.loaded ? 'No score yet' : 'Reading';
    between.textContent = !shown ? '' : shown.score === null ? reasonWord(shown.reason) : shown.interval ? `95 %: ${interval(shown.interval)}` : 'no interval known';
    put(foot, notes(shown, scored, data));
  }

  pointing(svg, { find, move: (index) => move(index ?? -1), open });
  svg.addEventListener('blur', () => move(-1));
  svg.addEventListener('keydown', (event) =>
    keys(event, {
      index: chosen,
      count: data.points.length,
      open,
      move: (at) => {
        move(at);
        const point = data.points[at];
        spoken.textContent = point ? `${named(point)}: ${point.score === null ? `${stateWord(point.status)}, ${reasonWord(point.reason)}` : `${score(point.score)}, ${interval(point.interval)}`}` : '';
      },
    }));
  onWidth(svg, (now) => ((width = now), draw()));
  return {
    node,
    update(next) {
      const held = data.points[chosen]?.jobId;
      data = next;
      chosen = held === undefined ? -1 : data.points.findIndex((point) => point.jobId === held);
      width ? draw() : head();
    },
  };
}

const isIncomplete = (point) => point.score !== null && point.scored < point.expected;

const named = (point) => (point.name ? `${point.target} ${point.name}` : `v${point.x}`);

function summary(dataset, { points, kind }) {
  const scored = points.filter((each) => each.score !== null);
  const what = kind === 'checkpoint' ? 'checkpoint' : 'policy version';
  if (scored.length === 0) return `Score on ${dataset} by ${what}: none yet`;
  const last = scored.at(-1);
  return `Score on ${dataset} by ${what}, ${scored.length} scores, the newest ${score(last.score)} of ${named(last)}. Arrow keys go from one to the next, Enter opens it.`;
}

function layout({ points, running, zoom, kind }, width) {
  const scored = points.filter((each) => each.score !== null);
  const ends = [points[0], points.at(-1), ...running].filter(Boolean).map((each) => each.x);
  const [low, high] = ends.length ? [Math.min(...ends), Math.max(...ends)] : [1, 10];
  const values = scored.flatMap((each) => [each.score, each.interval?.low ?? each.score, each.interval?.high ?? each.score]);
  const estimates = running.flatMap((job) => job.estimate ?? []);
  values.push(...estimates.flatMap((each) => [each.low ?? each.score, each.high ?? each.score]));
  const [bottom, top] = domain(values, zoom);
  return {
    width,
    scored,
    points,
    running,
    kind,
    low,
    high,
    bottom,
    top,
    x: scale(low === high ? [low - 1, high + 1] : [low, high], [EDGE.left + 8, width - EDGE.right - 8]),
    y: scale([bottom, top], [HEIGHT - EDGE.bottom, EDGE.top]),
  };
}

/** 0 to 1 where all values are there, unless one looks closer. */
function domain(values, zoom) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low === Infinity || (!zoom && low >= 0 && high <= 1)) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [zoom && low >= 0 ? Math.max(0, low - room) : low - room, zoom && high <= 1 ? Math.min(1, high + room) : high + room];
}

function grid({ x, y, width, low, high, bottom, top, kind, points }) {
  const base = HEIGHT - EDGE.bottom;
  const every = ticks(low, high, Math.min(10, (width - 60) / 52), true);
  const prefix = kind === 'checkpoint' ? 'c' : 'v';
  return [
    ...ticks(bottom, top, 4).flatMap((value) => [
      line(EDGE.left, y(value), width - EDGE.right, y(value), 'grid'),
      label(EDGE.left - 8, y(value) + 4, String(Number(value.toFixed(4))), { 'text-anchor': 'end' }),
    ]),
    line(EDGE.left, base, width - EDGE.right, base, 'axis'),
    ...(points.length ? every.filter((value) => value >= low && value <= high).map((value) => label(x(value), HEIGHT - 8, `${prefix}${value}`, { 'text-anchor': 'middle' })) : []),
  ];
}

function series({ scored, x, y, kind }) {
  if (scored.length === 0) return [];
  const at = (point, value) => `${x(point.x).toFixed(1)} ${y(value).toFixed(1)}`;
  const dense = scored.length > DENSE;
  const drawn = dense ? means(scored) : scored;
  const ranged = drawn.filter((point) => point.interval);
  const band = ranged.length > 1 && kind === 'live'
    ? [s('path', { class: 'band', d: `M${ranged.map((p) => at(p, p.interval.high)).join('L')}L${ranged.toReversed().map((p) => at(p, p.interval.low)).join('L')}Z` })]
    : [];
  const path = kind === 'live' ? [s('path', { class: 'line', d: `M${drawn.map((p) => at(p, p.score)).join('L')}` })] : [];
  const cap = (p, value) => `M${(x(p.x) - 3).toFixed(1)} ${y(value).toFixed(1)}h6`;
  const whiskers = dense ? [] : [s('path', { class: 'whiskers', d: ranged.map((p) => `M${at(p, p.interval.low)}L${at(p, p.interval.high)}${cap(p, p.interval.low)}${cap(p, p.interval.high)}`).join('') })];
  const dots = (points, kinds) => (points.length ? [s('path', { class: kinds, d: points.map((p) => `M${at(p, p.score)}h.01`).join('') })] : []);
  return [...band, ...whiskers, ...path, ...dots(scored, `dots ${dense ? 'dense' : ''}`), ...(dense ? [] : dots(scored.filter(isIncomplete), 'holes'))];
}

/** Of so many versions that their points run together: the mean of each stretch of them. */
function means(scored) {
  const size = Math.ceil(scored.length / DENSE);
  const mean = (points, value) => points.reduce((sum, each) => sum + value(each), 0) / points.length;
  const found = [];
  for (let at = 0; at < scored.length; at += size) {
    const points = scored.slice(at, at + size);
    const ranged = points.filter((each) => each.interval);
    found.push({
      x: mean(points, (each) => each.x),
      score: mean(points, (each) => each.score),
      interval: ranged.length ? { low: mean(ranged, (each) => each.interval.low), high: mean(ranged, (each) => each.interval.high) } : null,
    });
  }
  return found;
}

/** Below the axis: how evaluations without a score ended. Marks that would cover each other are left out. */
function strip({ points, x, width }) {
  const y = HEIGHT - EDGE.bottom + 15;
  const marks = [];
  let last = -Infinity;
  for (const point of points) {
    if (point.score !== null || x(point.x) - last < 11) continue;
    last = x(point.x);
    marks.push(mark(point.status, last, y, 11, stateKind(point.status)));
  }
  return marks.length ? [line(EDGE.left, y + 9, width - EDGE.right, y + 9, 'grid'), ...marks] : [];
}

function liveMark({ scored, x, y, width, kind }, live) {
  if (!live.estimate) return [];
  const { score: value, low, high } = live.estimate;
  const at = x(live.x);
  const before = scored.filter((point) => point.x < live.x).at(-1);
  return [
    before && kind === 'live' && line(x(before.x), y(before.score), at, y(value), 'live-line'),
    low !== undefined && low !== null && line(at, y(low), at, y(high), 'live-whisker'),
    s('path', { class: 'live', d: `M${at} ${y(value) - 6}l6 6-6 6-6-6z` }),
    width > 480 && label(Math.min(at + 8, width - EDGE.right), y(low ?? value) + 16, `running ${live.done}/${live.expected}`, { class: 'live-text', 'text-anchor': 'end' }),
  ].filter(Boolean);
}

function cursorMark({ x, y }, point) {
  return s('g', { class: 'cursor-part' },
    line(x(point.x), EDGE.top, x(point.x), HEIGHT - EDGE.bottom, 'cursor'),
    point.score !== null && s('circle', { class: 'cursor-dot', cx: x(point.x), cy: y(point.score), r: 5 }));
}

function notes(shown, scored, { running, kind }) {
  const runs = running.map((job) => h('span', {}, runningText(job)));
  if (!shown) return runs;
  const at = scored.indexOf(shown);
  const before = at > 0 ? scored[at - 1] : null;
  const best = scored.reduce((a, b) => (b.score > a.score ? b : a), scored[0] ?? null);
  return [
    shown.score !== null && kind === 'live' && (shown.previous ?? before) && h('span', {}, shown.previous ? changeText(shown.previous) : `${signed(shown.score - before.score)} to ${named(before)}`),
    best && scored.length > 1 && h('span', {}, shown === best ? 'the best so far' : `best ${score(best.score)} of ${named(best)}`),
    h('span', { class: isIncomplete(shown) ? 'note-warn' : '' }, `${shown.scored} of ${shown.expected} samples scored`),
    shown.step !== null && h('span', {}, `train step ${shown.step}`),
    scored.length > DENSE && h('span', {}, `line and band: means of ${Math.ceil(scored.length / DENSE)} versions`),
    scored.some(isIncomplete) && scored.length <= DENSE && h('span', {}, 'hollow: not all samples scored'),
    ...runs,
    shown.sameWeights && h('span', { class: 'note-warn' }, 'same weights as an earlier version'),
  ];
}

const runningText = (live) =>
  `${live.kind === 'checkpoint' ? 'c' : 'v'}${live.x} runs, ${live.done} of ${live.expected}${live.estimate ? `: ${score(live.estimate.score)} so far (${interval(live.estimate)})` : ''}`;
