// What charts share: scales, ticks, sizes, and a cursor for pointer and keyboard.
import { s } from './dom.js';

/** A straight map from [a, b] to [from, to]. */
export function scale([a, b], [from, to]) {
  const span = b - a || 1;
  const map = (value) => from + ((value - a) / span) * (to - from);
  map.back = (at) => a + ((at - from) / (to - from || 1)) * span;
  return map;
}

/** Round numbers within [low, high], about `count` of them; whole ones if asked. */
export function ticks(low, high, count, whole = false) {
  const rough = (high - low) / Math.max(1, count) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough && (!whole || Number.isInteger(each))) ?? 10 * power;
  const used = whole ? Math.max(1, Math.ceil(step)) : step;
  const found = [];
  for (let at = Math.ceil(low / used - 1e-9) * used; at <= high + used * 1e-9; at += used) found.push(Math.round(at / used) * used);
  return found;
}

/** Call `draw(width)` now and whenever the width of `element` changes; returns what ends that. */
export function onWidth(element, draw) {
  let last = 0;
  const observer = new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width === last || width === 0) return;
    last = width;
    draw(width);
  });
  observer.observe(element);
  return () => observer.disconnect();
}

/** The item of a rising list whose x is nearest. */
export function nearest(items, x) {
  let low = 0;
  let high = items.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].x < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - items[low - 1].x <= items[low].x - x ? low - 1 : low;
}

/** Arrow keys, Home and End move an index; Enter opens. */
export function keys(event, { index, count, move, open }) {
  const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: count - 1, PageUp: index - 10, PageDown: index + 10 }[event.key];
  if (event.key === 'Enter' && index >= 0) open(index);
  else if (event.key === 'Escape') move(-1);
  else if (to !== undefined && count > 0) move(Math.max(0, Math.min(count - 1, index < 0 ? count - 1 : to)));
  else return;
  event.preventDefault();
}

/**
 * Pointing at things in a picture. A mouse points by moving and opens by a click; on a touch screen the first tap
 * points and the second opens. find(event) is a key or null; move(key) says whether that is another one.
 */
export function pointing(svg, { find, move, open }) {
  let fresh = false;
  const byTouch = (event) => event.pointerType === 'touch';
  svg.addEventListener('pointerdown', (event) => (fresh = byTouch(event) && move(find(event), event)));
  svg.addEventListener('pointermove', (event) => !byTouch(event) && move(find(event), event));
  svg.addEventListener('pointerleave', (event) => !byTouch(event) && move(null, event));
  svg.addEventListener('click', (event) => (fresh ? (fresh = false) : open(find(event), event)));
}

export const line = (x1, y1, x2, y2, cls) => s('line', { x1, y1, x2, y2, class: cls });
export const label = (x, y, text, attributes = {}) => s('text', { x, y, ...attributes }, text);
