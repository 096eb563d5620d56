// What the shapes of the lane mean.
import { h, s } from './dom.js';
import { icon } from './icons.js';

const KEYS = [
  ['sync', 'sync, sealed'],
  ['sync discarded', 'sync, discarded'],
  ['wait', 'waiting'],
  ['load', 'loading'],
  ['job succeeded', 'eval'],
  ['job cancelled', 'eval, cancelled'],
  ['job failed', 'failed, or engine not usable'],
];
const MARKS = [['superseded', 'passed over by a newer version'], ['cancelled', 'cancelled'], ['dropped', 'dropped'], ['failed', 'failed']];

export function legend() {
  return h('div', { class: 'legend' },
    KEYS.map(([cls, text]) => h('span', {}, s('svg', { class: 'key plot lane', viewBox: '0 0 24 11', 'aria-hidden': 'true' }, s('rect', { class: cls, x: 1, y: 1, width: 22, height: 9, rx: 2 })), text)),
    MARKS.map(([name, text]) => h('span', {}, icon(name), text)));
}
