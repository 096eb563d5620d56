// Icons: one shape for each state, so that shape tells what colour tells. Drawn on a grid of 16.
import { s } from './dom.js';

const SHAPES = {
  waiting: ['M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2z', 'M8 4.8V8l2.3 1.6'],
  running: ['!M5 3.2v9.6L13 8z'],
  succeeded: ['M3 8.6l3.2 3.2L13 4.6'],
  failed: ['M8 2.2 14.2 13.4H1.8z', 'M8 6.4v3.2', 'M8 11.5v.1'],
  timed_out: ['M4 2.2h8', 'M4 13.8h8', 'M4.8 2.2c0 3 3.2 4.2 3.2 5.8s-3.2 2.8-3.2 5.8', 'M11.2 2.2c0 3-3.2 4.2-3.2 5.8s3.2 2.8 3.2 5.8'],
  cancelled: ['M4 4l8 8', 'M12 4l-8 8'],
  superseded: ['M3.5 3.8 7.6 8l-4.1 4.2', 'M8.6 3.8 12.7 8l-4.1 4.2'],
  dropped: ['M8 2.2v7.4', 'M4.6 6.4 8 9.8l3.4-3.4', 'M3 13.4h10'],
  receiving: ['M8 2.2v6.6', 'M5 6l3 3 3-3', 'M2.6 9.6v3.8h10.8V9.6'],
  sealed: ['M3.4 7.4h9.2v6.2H3.4z', 'M5.4 7.4V5.2a2.6 2.6 0 0 1 5.2 0v2.2'],
  discarded: ['M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2z', 'M3.8 12.2l8.4-8.4'],
  collected: ['M2.4 3h11.2v3H2.4z', 'M3.6 6v7.2h8.8V6', 'M6.4 8.6h3.2'],
  starting: ['M8 2.2a5.8 5.8 0 1 0 5.8 5.8', 'M8 4.8V8'],
  serving: ['M3 8.6l3.2 3.2L13 4.6'],
  draining: ['M4 2.2h8', 'M4 13.8h8', 'M4.8 2.2c0 3 3.2 4.2 3.2 5.8s-3.2 2.8-3.2 5.8', 'M11.2 2.2c0 3-3.2 4.2-3.2 5.8s3.2 2.8 3.2 5.8'],
  finished: ['M4 14V2.6', 'M4 3h8.4l-2 2.8 2 2.8H4'],
  ready: ['M8 3.4a4.6 4.6 0 1 0 0 9.2 4.6 4.6 0 0 0 0-9.2z'],
  pinned: ['!M8 3.4a4.6 4.6 0 1 0 0 9.2 4.6 4.6 0 0 0 0-9.2z'],
  quarantined: ['M8 2.2 14.2 13.4H1.8z', 'M8 6.4v3.2', 'M8 11.5v.1'],
  dead: ['M4 4l8 8', 'M12 4l-8 8'],
  better: ['!M8 3.4 13.4 12H2.6z'],
  worse: ['!M8 12.6 2.6 4h10.8z'],
  same: ['M3 6h10', 'M3 10h10'],
  unpaired: ['M3 8h2', 'M7 8h2', 'M11 8h2'],
  right: ['M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z', 'M5 8.3l2.1 2.1L11.2 6'],
  wrong: ['M2.4 2.4h11.2v11.2H2.4z', 'M5.6 5.6l4.8 4.8', 'M10.4 5.6l-4.8 4.8'],
  none: ['M4 8h8'],
  warning: ['M8 2.2 14.2 13.4H1.8z', 'M8 6.4v3.2', 'M8 11.5v.1'],
  open: ['!M8 4.6a3.4 3.4 0 1 0 0 6.8 3.4 3.4 0 0 0 0-6.8z'],
  connecting: ['M8 4.6a3.4 3.4 0 1 0 0 6.8 3.4 3.4 0 0 0 0-6.8z'],
  lost: ['M3 3l10 10', 'M6 4.2a7.5 7.5 0 0 1 7.6 2.4', 'M2.4 6.6A8 8 0 0 1 4 5.2', 'M5.2 9.6a4 4 0 0 1 2-1', 'M8 12.4v.1'],
  protected: ['M8 1.8l5.2 2v4c0 3-2.2 5.2-5.2 6.4-3-1.2-5.2-3.4-5.2-6.4v-4z'],
};

function paths(name) {
  return (SHAPES[name] ?? SHAPES.none).map((d) =>
    s('path', d.startsWith('!') ? { d: d.slice(1), class: 'solid' } : { d }),
  );
}

/** An icon beside a word that says the same; it is hidden from screen readers. */
export const icon = (name) => s('svg', { class: `icon icon-${name}`, viewBox: '0 0 16 16', 'aria-hidden': 'true' }, paths(name));

/** The same shape inside a picture, with its middle at x, y. */
export const mark = (name, x, y, size, kind = '') =>
  s('g', { class: `end-mark ${kind}`, transform: `translate(${x - size / 2} ${y - size / 2}) scale(${size / 16})` }, paths(name));
