// Draws the rows of the lane. Spans narrower than a pixel run together, so that thousands of them stay cheap.
import { s } from './dom.js';
import { clock } from './format.js';
import { mark } from './icons.js';
import { label, line, scale } from './plot.js';
import { stateKind, stateWord } from './words.js';

const ROW = 40;
const SYNC_ROW = 34;
const WAIT_ROW = 19;
const TOP = 26;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const CHARACTER = 6.7;

/** Fill `svg`; the height that it needs. */
export function drawLane(svg, { rows, from, to, width, chosen, live, now }) {
  const left = width < 560 ? 62 : 108;
  const x = scale([from, to], [left, width - (live ? 10 : 2)]);
  const parts = [];
  const context = { x, from, to, chosen, left, width, parts };
  const engines = rows?.engines ?? [];
  const waiting = rows?.waiting.length ? rows.waiting : [[]];
  const bottoms = [];
  let y = TOP;
  y = row(context, { y, height: SYNC_ROW, title: 'Syncs', spans: rows?.syncs ?? [], pad: 8 });
  bottoms.push(y);
  const waitTop = y;
  waiting.forEach((spans) => (y = row(context, { y: y === waitTop ? y + 5 : y, height: WAIT_ROW, spans, pad: 2, quiet: true })));
  parts.push(label(0, waitTop + 20, 'Waiting', { class: 'row-label' }));
  y += 5;
  bottoms.push(y);
  for (const { name, state, spans } of engines) {
    const note = width < 560 || !state ? '' : `${stateWord(state.state).toLowerCase()}${state.target ? ` ${state.target}` : ''}`;
    y = row(context, { y, height: ROW, title: cut(name, left - 6), note, spans, pad: 7 });
    bottoms.push(y);
  }
  const height = y + 6;
  const frame = [...timeAxis(x, from, to, width, left, y), ...bottoms.map((at) => line(0, at, width, at, 'row-line'))];
  if (live) frame.push(line(x(now), TOP - 4, x(now), y, 'now'));
  svg.replaceChildren(...frame, ...parts, ...follow(context));
  return height;
}

function row(context, { y, height, title, note, spans, pad }) {
  const { parts } = context;
  if (title) parts.push(label(0, y + (note ? 17 : height / 2 + 4), title, { class: 'row-label' }));
  if (note) parts.push(label(0, y + 31, note, { class: 'row-note' }));
  const ends = new Map();
  const late = [];
  const sorted = [...spans].sort((a, b) => (a.inner ? 1 : 0) - (b.inner ? 1 : 0) || a.begin - b.begin);
  for (const [at, span] of sorted.entries()) {
    if (span.end < context.from || span.begin > context.to) continue;
    const next = sorted[at + 1];
    const free = next && Boolean(next.inner) === Boolean(span.inner) ? context.x(next.begin) : context.width;
    draw(context, { ...span, free }, y + pad + (span.inner ? 4 : 0), height - 2 * pad - (span.inner ? 8 : 0), ends, late);
  }
  parts.push(...late);
  return y + height;
}

function draw({ x, from, chosen, left, width, parts }, span, y, height, ends, late) {
  const begin = Math.max(left, x(span.begin));
  const end = Math.min(width, x(span.end));
  const wide = Math.max(end - begin, 2.5);
  const last = ends.get(span.cls) ?? -Infinity;
  if (begin + wide <= last + 1 && chosen !== span.part.target) return; // under what is there already
  ends.set(span.cls, begin + wide);
  const dim = chosen !== null && span.part.target !== chosen;
  const rect = s('rect', { class: `span ${span.cls} ${dim ? 'dim' : ''} ${chosen && !dim ? 'chosen' : ''}`, x: begin, y, width: wide, height, rx: 2, 'data-part': '' });
  rect.part = span.part;
  parts.push(rect);
  if (span.open && from < span.end) late.push(line(begin + wide, y - 1, begin + wide, y + height + 1, 'open-edge'));
  texts({ span, begin, wide, y, height, dim, room: Math.min(width, span.free), ends, late });
}

/** The name inside where there is room, else beside it where nothing else is; the mark of its end behind it. */
function texts({ span, begin, wide, y, height, dim, room, ends, late }) {
  const middle = y + height / 2;
  const options = [span.text, span.shortText].filter(Boolean);
  const inside = options.find((text) => text.length * CHARACTER + 8 < wide - (span.icon ? 14 : 0));
  const faded = dim ? 'dim' : '';
  if (inside) late.push(label(begin + 5, middle + 4, inside, { class: `span-text ${span.inner && ['succeeded', 'running'].some((each) => span.cls.endsWith(each)) ? 'on' : 'plate'} ${faded}` }));
  let at = begin + wide + 3;
  const within = wide > 30 && inside;
  const place = within ? begin + wide - 9 : at + 5;
  if (span.icon && place > (ends.get('icon') ?? -Infinity) + 11) {
    late.push(mark(span.icon, place, middle, 11, `${stateKind(span.icon)} ${faded}`));
    ends.set('icon', place);
    at += within ? 0 : 13;
  }
  const outside = options.at(-1);
  const free = ends.get('text') ?? -Infinity;
  if (inside || !outside || span.inner || span.cls === 'held' || span.cls === 'load') return;
  if (begin < free || at + outside.length * CHARACTER > room) return;
  ends.set('text', at + outside.length * CHARACTER + 4);
  late.push(label(at, middle + 4, outside, { class: `span-text plate ${faded}` }));
}

function timeAxis(x, from, to, width, left, bottom) {
  const room = width < 560 ? 68 : 92;
  const step = STEPS.find((each) => x(from + each) - x(from) >= room) ?? 86400;
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const parts = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) {
    parts.push(line(x(at), TOP - 6, x(at), bottom, 'grid'));
    if (x(at) < width - 26 && x(at) > left + 4) parts.push(label(x(at), 13, clock(at, { seconds: step < 60 }).slice(-8), { 'text-anchor': 'middle' }));
  }
  return parts;
}

/** For the chosen target: a line from the end of its sync down through its wait to its eval. */
function follow({ chosen, parts }) {
  if (!chosen) return [];
  const boxes = parts.filter((part) => part.part?.target === chosen).map((part) => ({
    kind: part.part.kind,
    left: Number(part.getAttribute('x')),
    right: Number(part.getAttribute('x')) + Number(part.getAttribute('width')),
    top: Number(part.getAttribute('y')),
    bottom: Number(part.getAttribute('y')) + Number(part.getAttribute('height')),
  }));
  const path = [];
  for (let at = 1; at < boxes.length; at += 1) {
    const [a, b] = [boxes[at - 1], boxes[at]];
    if (b.top > a.bottom && a.kind !== 'eval') path.push(`M${a.right} ${a.bottom}L${b.left} ${b.top}`);
  }
  return path.length ? [s('path', { class: 'link-line', d: path.join('') })] : [];
}

const cut = (text, room) => (text.length * 7 <= room ? text : `${text.slice(0, Math.max(3, Math.floor(room / 7) - 1))}…`);

/** Hatches and dots, by which kinds of spans are told apart without colours. */
export function patterns() {
  const pattern = (id, cls, size, ...content) =>
    s('pattern', { id, class: cls, width: size, height: size, patternUnits: 'userSpaceOnUse' }, s('rect', { width: size, height: size }), content);
  return s('defs', {},
    pattern('hatch-eval', 'pattern-hatch-eval', 7, s('path', { d: 'M-2 9 9 -2M-2 2 2 -2M5 9l4 -4' })),
    pattern('hatch-wait', 'pattern-hatch-wait', 6, s('path', { d: 'M-1 7 7 -1' })),
    pattern('dots-load', 'pattern-dots', 5, s('circle', { cx: 2.5, cy: 2.5, r: 1.25 })),
    pattern('cross-bad', 'pattern-cross', 6, s('path', { d: 'M0 0l6 6M6 0l-6 6' })));
}
