// The state of the connection, where one always sees it, and a banner when what is shown may be old.
import { h, put } from './dom.js';
import { clock } from './format.js';
import { icon } from './icons.js';

const WORDS = { open: 'Live', connecting: 'Connecting', waiting: 'Offline' };
const KINDS = { open: 'good', connecting: 'quiet', waiting: 'bad' };
const ICONS = { open: 'open', connecting: 'connecting', waiting: 'lost' };
/** A break shorter than this is no news. */
const PATIENCE_MS = 1500;

export function connectionBar(model) {
  const button = document.getElementById('connection');
  const banner = document.getElementById('banner');
  let broken = null;

  function draw() {
    const { state, retryAt, why } = model.failure ? { state: 'waiting', why: model.failure.message } : model.connection;
    const word = !model.loaded && state !== 'waiting' ? 'Connecting' : WORDS[state];
    if (button.dataset.state !== `${state} ${word}`) {
      button.dataset.state = `${state} ${word}`;
      put(button, h('span', { class: `badge ${KINDS[state]}` }, icon(ICONS[state]), word));
    }
    broken = state === 'open' ? null : (broken ?? Date.now());
    const late = broken !== null && state === 'waiting' && Date.now() - broken > PATIENCE_MS;
    banner.hidden = !late;
    if (!late) return;
    const seconds = retryAt ? Math.max(0, Math.ceil((retryAt - Date.now()) / 1000)) : null;
    const over = model.status?.state === 'finished' || model.status?.state === 'draining';
    const text = over
      ? 'The service has done its work and is gone. What is shown is its last state; live-eval results shows all of it.'
      : `No connection: ${why}. ${model.heard ? `What is shown is from ${clock(model.heard / 1000)}.` : ''}`;
    put(
      banner,
      icon('warning'),
      h('span', {}, text, seconds !== null && ` Next try in ${seconds} s.`),
      h('button', { type: 'button', class: 'button small', 'data-focus': 'retry', onclick: again }, 'Try now'),
    );
  }

  function again() {
    if (model.loaded) model.events.retryNow();
    else model.load();
  }

  button.addEventListener('click', again);
  model.subscribe((changed) => changed.has('connection') && draw());
  setInterval(draw, 1000);
  draw();
}
