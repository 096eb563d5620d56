// Starts the page: the bar on top, the views by the address' hash, the dialogs.
import { announce, h, put } from './dom.js';
import { badge } from './parts.js';
import { connectionBar } from './connection.js';
import { loginDialog } from './login.js';
import { Model } from './model.js';
import { submitDialog } from './submit.js';
import { compareView } from './compare.js';
import { jobView } from './job.js';
import { jobsView } from './jobs.js';
import { overviewView } from './overview.js';
import { versionsView } from './versions.js';
import { targetName } from './format.js';
import { reasonWord, stateWord } from './words.js';
import { score } from './format.js';

const VIEWS = {
  '': ['Overview', overviewView],
  versions: ['Versions', versionsView],
  jobs: ['Jobs', jobsView],
  compare: ['Compare', compareView],
  job: [null, jobView],
};

const model = new Model();
const main = document.getElementById('main');
const tabs = document.getElementById('tabs');
const submit = document.getElementById('submit');
let shown = null;

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [name, ...rest] = path.split('/');
  return { name: name in VIEWS ? name : '', rest: rest.join('/'), query: new URLSearchParams(query ?? '') };
}

function show() {
  const { name, rest, query } = route();
  const previous = shown;
  shown?.leave?.();
  shown = { name, ...VIEWS[name][1](model, { rest: decode(rest), query }) };
  put(main, shown.node);
  shown.update(new Set(['all']));
  document.title = `${VIEWS[name][0] ?? decode(rest)} · live-eval`;
  for (const link of tabs.children) {
    if (link.dataset.view === (name === 'job' ? 'jobs' : name)) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (previous && previous.name !== name) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function drawBar() {
  const { status } = model;
  document.getElementById('run-id').textContent = status?.run_id ?? '';
  document.getElementById('run-id').title = status ? `run ${status.run_id}, live-eval ${status.live_eval_version}` : '';
  put(document.getElementById('service-state'), status ? badge(status.state) : '');
  const roots = status?.checkpoint_roots ?? [];
  const open = status && roots.length > 0 && status.state !== 'finished';
  submit.disabled = !open;
  submit.title = open ? '' : !status ? 'not connected yet' : roots.length ? 'the service has finished' : 'this service has no folder from which checkpoints may come (checkpoint_roots)';
}

function tell(changed) {
  const result = model.lastResult;
  if (!changed.has('results') || !model.loaded || !result || tell.last === result) return;
  if (tell.last !== undefined) announce(`${targetName(result)} on ${result.dataset}: ${stateWord(result.status)}, ${result.score === null ? reasonWord(result.reason) : score(result.score)}`);
  tell.last = result;
}

put(tabs, Object.entries(VIEWS).filter(([, [word]]) => word).map(([name, [word]]) => h('a', { href: `#/${name}`, 'data-view': name }, word)));
model.subscribe((changed) => {
  if (changed.has('status')) drawBar();
  tell(changed);
  shown?.update(changed);
});
submit.addEventListener('click', () => submitDialog(model));
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener('needs-token', () => loginDialog(model));
addEventListener('hashchange', show);
connectionBar(model);
show();
model.load();
