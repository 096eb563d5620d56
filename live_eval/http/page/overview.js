// The first view: figures, scores, the time lane, what runs and waits, and how the last ones ended.
import { h, keyed, put, slot } from './dom.js';
import { ago, bytes, clock, duration, pathName, placeOf, plural, score, targetName } from './format.js';
import { icon } from './icons.js';
import { cancelButton } from './cancel.js';
import { lanePanel } from './lane.js';
import { badge, card, empty, hasScore, jobLink, scoreCell, segments, whyOf } from './parts.js';
import { scoreChart } from './scores.js';
import { stateWord } from './words.js';

export function overviewView(model) {
  const figures = figuresPanel(model);
  const scores = scoresPanel(model);
  const lane = lanePanel(model);
  const now = nowPanel(model);
  const ends = endsPanel(model);
  const parts = [figures, scores, lane, now, ends];
  const node = h('div', { class: 'stack' }, h('h1', { class: 'hidden-text' }, 'Overview'), figures.node, scores.node, lane.node, h('div', { class: 'split' }, now.node, ends.node));
  const clockTick = setInterval(() => figures.update(new Set(['status'])), 1000);
  return {
    node,
    update: (changed) => parts.forEach((part) => part.update(changed.has('all') ? new Set(['status', 'results', 'progress', 'jobs', 'engines', 'connection']) : changed)),
    leave: () => (lane.leave(), clearInterval(clockTick)),
  };
}

function figuresPanel(model) {
  const cells = new Map();
  const node = h('dl', { class: 'figures', 'aria-label': 'State of the service' });
  for (const name of ['Stable version', 'Newest score', 'Running', 'Waiting', 'Ended jobs', 'Syncs and store']) {
    const value = h('dd', { class: 'value' });
    const note = h('dd', { class: 'note' });
    cells.set(name, [value, note].map((element) => slot(element, (content) => content)));
    node.append(h('div', { class: 'figure' }, h('dt', {}, name), value, note));
  }
  const set = (name, ...contents) => contents.forEach((content, at) => cells.get(name)[at](content));
  function update(changed) {
    const { status } = model;
    if (!['status', 'progress', 'jobs'].some((name) => changed.has(name))) return;
    if (!status) return void [...cells.keys()].forEach((name) => set(name, '–', ''));
    const age = status.stable_at === null ? null : model.now() - status.stable_at;
    set('Stable version', status.stable_version === null ? '–' : `v${status.stable_version}`, age === null ? 'no sync yet' : `sealed ${ago(age)}`);
    set('Newest score', ...newestScore(model, status));
    const running = model.jobsBy('running');
    set('Running', ...runningWords(running, status));
    const waiting = model.jobsBy('waiting');
    set('Waiting', String(waiting.length), waiting.length ? [...new Set(waiting.map((job) => job.target))].slice(0, 6).join(', ') : checkpointsOnly(model) ? '' : `a newer version: ${status.on_update}`);
    const totals = Object.entries(status.totals).filter(([name]) => name !== 'waiting' && name !== 'running');
    set('Ended jobs', String(totals.reduce((sum, [, count]) => sum + count, 0)), totals.map(([name, count]) => `${count} ${stateWord(name).toLowerCase()}`).join(', '));
    const discarded = Object.values(status.discarded).reduce((sum, count) => sum + count, 0);
    set('Syncs and store', `${plural(discarded, 'discarded', 'discarded')}`, `${bytes(status.store.used_bytes)} of ${bytes(status.store.max_bytes)}${status.held_s === null ? '' : `, trainer held ${duration(status.held_s)}`}`);
  }
  return { node, update };
}

/** Of a version, and how far it is behind; without any, of the checkpoint that was scored last. */
function newestScore(model, status) {
  if (status.scored_version !== null) {
    const late = status.lag_s === null ? '' : `, ${duration(status.lag_s)}`;
    return [`v${status.scored_version}`, status.lag_versions ? `${plural(status.lag_versions, 'version')}${late} behind` : 'up to date'];
  }
  const checkpoint = model.ends.find((result) => result.score !== null);
  return checkpoint ? [checkpoint.target, `${pathName(checkpoint.checkpoint)} on ${checkpoint.dataset}`] : ['–', 'nothing scored yet'];
}

/** Whether all that was ever asked for are checkpoints: no trainer has sent anything. */
const checkpointsOnly = (model) => model.status?.stable_version === null && model.checkpoints.size > 0 && model.results.size === 0;

/** What runs, and how far it is; where several checkpoints run side by side each job says whose it is. */
function runningWords(running, status) {
  if (!running.length) return ['idle', stateNote(status)];
  const names = [...new Set(running.map(targetName))];
  const name = (job) => (names.length > 1 ? job.job_id : job.dataset);
  return [names.length > 1 ? plural(names.length, 'evaluation') : names[0], running.map((job) => `${name(job)} ${job.num_done} of ${job.num_expected}`).join(', ')];
}

const stateNote = (status) => (status.state === 'starting' ? 'engines are starting' : status.state === 'finished' ? 'all is evaluated' : '');

function scoresPanel(model) {
  const charts = new Map();
  const holder = h('div', { class: 'charts' });
  const tools = h('div', { class: 'view-head' });
  let kind = 'live';
  let zoom = false;
  const node = h('section', { class: 'stack', 'aria-label': 'Scores' }, tools, holder);
  const drawTools = slot(tools, ([both]) => [
    h('h2', {}, `Score by ${kind === 'live' ? 'policy version' : 'checkpoint'}`),
    h('div', { class: 'end' },
      both && segments('What is drawn', [['live', 'Policy versions'], ['checkpoint', 'Checkpoints']], kind, (value) => ((kind = value), drawAll())),
      segments('Scale of the scores', [[false, '0 to 1'], [true, 'Fit']], zoom, (value) => ((zoom = value), drawAll()))),
  ]);

  function drawAll() {
    const names = model.datasetNames();
    const has = (table) => [...table.values()].some((rows) => rows.size > 0);
    const [live, checkpoint] = [has(model.results), has(model.checkpoints)];
    if (!live && checkpoint && model.loaded && kind === 'live' && model.status?.stable_version === null) kind = 'checkpoint';
    drawTools([live && checkpoint, kind]); // not zoom: its buttons know what is pressed
    tools.hidden = names.length === 0;
    if (names.length === 0) return void (charts.clear(), (holder.keyedParts = undefined), put(holder, card('', { body: empty(waitText(model)) })));
    if (charts.size === 0) put(holder);
    keyed(holder, names, (name) => name, (name) => {
      const chart = scoreChart(name);
      charts.set(name, chart);
      return { node: chart.node, update: (each) => chart.update({ points: model.points(each, kind), running: runningOn(model, each, kind), zoom, kind, loaded: model.loaded }) };
    });
  }
  const update = (changed) => ['results', 'progress', 'jobs', 'status'].some((name) => changed.has(name)) && needed(changed) && drawAll();
  const needed = (changed) => !(changed.size === 1 && changed.has('status')) || charts.size === 0;
  return { node, update };
}

const waitText = (model) => {
  if (model.failure) return `Nothing could be read: ${model.failure.message}.`;
  if (!model.status) return 'Reading.';
  return 'No dataset is configured.';
};

function runningOn(model, dataset, kind) {
  const jobs = model.jobsBy('running').filter((job) => job.dataset === dataset && job.kind === kind);
  return jobs.map(runningJob).sort((a, b) => a.x - b.x);
}

function runningJob(job) {
  return { x: placeOf(job), kind: job.kind, done: job.num_done, expected: job.num_expected, estimate: hasScore(job.estimate) ? job.estimate : null };
}

function nowPanel(model) {
  const list = h('ul', { class: 'rows' });
  const none = empty('Nothing runs and nothing waits.');
  const node = card('Now', { body: [list, none] });
  const update = (changed) => {
    if (!['jobs', 'progress', 'results', 'status'].some((name) => changed.has(name))) return;
    const jobs = [...model.jobsBy('running'), ...model.jobsBy('waiting')];
    keyed(list, jobs.slice(0, 30), (job) => job.job_id, () => nowRow(model));
    none.hidden = jobs.length > 0;
    none.textContent = !model.status ? 'Not connected yet.' : model.status.state === 'finished' ? 'All is evaluated.' : model.status.state === 'starting' ? 'The engines are starting. What is due will be evaluated then.' : `Nothing runs and nothing waits. ${checkpointsOnly(model) ? 'A checkpoint that is submitted' : 'The next due version'} starts by itself.`;
  };
  return { node, update };
}

function nowRow(model) {
  const name = h('span', {});
  const end = h('span', {});
  const body = h('span', { class: 'wide small' });
  const slots = [
    slot(name, (_, job) => [jobLink(job.job_id, targetName(job)), ` ${job.dataset} `, badge(job.status), job.protected && h('span', { class: 'badge' }, icon('protected'), 'Protected')]),
    slot(end, (_, job) => cancelButton(model, job)),
    slot(body, (_, job) => (job.status === 'running' ? scoreCell(job) : h('span', { class: 'muted' }, `${whyOf(job)}, since ${clock(job.requested_at)}${job.attempt > 1 ? `, attempt ${job.attempt}` : ''}`))),
  ];
  return {
    node: h('li', {}, name, end, body),
    update(job) {
      slots[0]([job.job_id, job.status, job.protected], job);
      slots[1]([job.status], job);
      slots[2]([job.status, job.num_done, job.estimate, job.reason, job.attempt], job);
    },
  };
}

function endsPanel(model) {
  const list = h('ul', { class: 'rows' });
  const none = empty('No job has ended yet.');
  const node = card('Ended last', { end: h('a', { href: '#/jobs', class: 'small' }, 'All jobs'), body: [list, none] });
  const update = (changed) => {
    if (!changed.has('results')) return;
    keyed(list, model.ends.slice(0, 8), (result) => result.job_id, (result) => ({ node: endRow(result), update: () => {} }));
    none.hidden = model.ends.length > 0;
  };
  return { node, update };
}

const endRow = (result) =>
  h('li', {},
    h('span', {}, jobLink(result.job_id, targetName({ ...result, checkpoint_name: pathName(result.checkpoint) })), ` ${result.dataset} `, badge(result.status)),
    h('strong', {}, result.score === null ? '' : score(result.score)),
    h('span', { class: 'wide small muted' }, [clock(result.finished_at), result.status === 'succeeded' ? `took ${duration(result.duration_s)}` : whyOf(result), result.detail].filter(Boolean).join(', ')));
