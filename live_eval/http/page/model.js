// What the page knows of the service: read once, then kept up by events. Views are told what changed, at most
// once a frame. It knows nothing of elements.
import { get, getAll } from './api.js';
import { Events } from './events.js';
import { pathName, placeOf } from './format.js';
import { isEnded } from './words.js';

const MOST_RESULTS = 20000;
const MOST_ENDS = 12;

export class Model {
  constructor() {
    this.listeners = new Set();
    this.changed = new Set();
    this.connection = { state: 'connecting' };
    this.skew = 0;
    this.forget();
    this.events = new Events({
      onEvent: (name, data) => this.take(name, data),
      onState: (connection) => {
        this.connection = { ...connection, since: Date.now() };
        if (connection.state === 'open') this.heard = Date.now();
        this.touch('connection');
      },
    });
  }

  forget() {
    this.loaded = false;
    this.status = null;
    this.engines = [];
    this.datasets = new Map();
    /** Jobs that wait or run, by id. */
    this.active = new Map();
    /** Dataset -> Map of job id to result, of policy versions and of checkpoints. */
    this.results = new Map();
    this.checkpoints = new Map();
    /** The newest results of any kind, newest first. */
    this.ends = [];
  }

  /** Seconds since the epoch on the service's clock. */
  now() {
    return Date.now() / 1000 + this.skew;
  }

  /** fn(changed: Set) after something changed; returns what takes it back. */
  subscribe(fn) {
    this.listeners.add(fn);
    return () => this.listeners.delete(fn);
  }

  touch(...names) {
    names.forEach((name) => this.changed.add(name));
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      const { changed } = this;
      this.changed = new Set();
      for (const listener of [...this.listeners]) listener(changed);
    });
  }

  /** Read everything and follow from there; asked again while it fails. */
  async load() {
    if (this.loading) return void (this.wanted = true);
    this.loading = true;
    clearTimeout(this.retry);
    try {
      const status = await get('status');
      this.forget();
      this.takeStatus(status);
      this.touch('status');
      const [engines, datasets] = await Promise.all([get('engines'), get('datasets')]);
      this.engines = engines.items;
      this.datasets = new Map(datasets.items.map((each) => [each.name, each]));
      await getAll('jobs', { status: ['waiting', 'running'] }, (items) => items.forEach((job) => this.takeJob(job)), 5000);
      await getAll('results', {}, (items) => items.forEach((result) => this.takeResult(result)), MOST_RESULTS);
      this.loaded = true;
      this.failure = null;
      this.events.start(status.last_event_id);
    } catch (error) {
      this.failure = error;
      if (error.status !== 401) this.retry = setTimeout(() => this.load(), 3000);
    } finally {
      this.loading = false;
      if (this.wanted) this.load();
      this.wanted = false;
      this.touch('status', 'engines', 'jobs', 'results', 'versions', 'lane', 'connection');
    }
  }

  /** After a token was given. */
  again() {
    this.loaded ? this.events.retryNow() : this.load();
  }

  take(name, data) {
    this.heard = Date.now();
    if (name === 'reset') this.load();
    else if (name === 'status') this.takeStatus(data);
    else if (name === 'job') this.takeJob(data);
    else if (name === 'progress') this.takeProgress(data);
    else if (name === 'result') this.takeResult(data);
    else if (name === 'engine') this.takeEngine(data);
    else if (name === 'version') this.touch('versions', 'lane');
  }

  takeStatus(status) {
    this.status = status;
    this.skew = status.now - Date.now() / 1000;
    this.touch('status');
  }

  takeJob(job) {
    if (isEnded(job.status)) this.active.delete(job.job_id);
    else this.active.set(job.job_id, job);
    this.lastJob = job;
    this.touch('jobs', 'lane', `job:${job.job_id}`);
  }

  takeProgress({ job_id: jobId, ...progress }) {
    const job = this.active.get(jobId);
    if (job) this.active.set(jobId, { ...job, ...progress });
    this.touch('progress', `job:${jobId}`);
  }

  takeEngine(engine) {
    const at = this.engines.findIndex((each) => each.name === engine.name);
    if (at < 0) this.engines.push(engine);
    else this.engines[at] = engine;
    this.touch('engines', 'lane');
  }

  takeResult(result) {
    const table = result.policy_version === null ? this.checkpoints : this.results;
    let rows = table.get(result.dataset);
    if (!rows) table.set(result.dataset, (rows = new Map()));
    rows.set(result.job_id, point(result));
    rows.sorted = null;
    this.active.delete(result.job_id);
    this.ends = [result, ...this.ends.filter((each) => each.job_id !== result.job_id)].slice(0, MOST_ENDS);
    this.lastResult = result;
    this.touch('results', 'jobs', `job:${result.job_id}`);
  }

  /** Points of one dataset, rising; kind is "live" or "checkpoint". */
  points(dataset, kind) {
    const rows = (kind === 'checkpoint' ? this.checkpoints : this.results).get(dataset);
    if (!rows) return [];
    rows.sorted ??= [...rows.values()].sort((a, b) => a.x - b.x);
    return rows.sorted;
  }

  /** All datasets that are configured or have results, in order. */
  datasetNames() {
    const configured = this.status?.datasets ?? [];
    return [...new Set([...configured, ...this.results.keys(), ...this.checkpoints.keys()])];
  }

  jobsBy(status) {
    return [...this.active.values()].filter((job) => job.status === status).sort((a, b) => a.requested_at - b.requested_at || a.job_id.localeCompare(b.job_id, 'en', { numeric: true }));
  }
}

/**
 * The paired difference to another version that a result carries, {version, value, low, high}, or null;
 * name: vs_previous or vs_best.
 */
export function change(metrics, name) {
  const value = (key) => metrics?.[`${name}/${key}`]?.value ?? null;
  if (value('diff') === null) return null;
  const between = metrics[`${name}/diff`].interval;
  return { version: value('version'), value: value('diff'), low: between?.low ?? null, high: between?.high ?? null };
}

/** What a chart needs of a result; x is the policy version, or the number of the checkpoint. */
function point(result) {
  const { job_id: jobId, target, status, reason, score, interval } = result;
  return {
    x: placeOf(result),
    jobId,
    target,
    name: pathName(result.checkpoint),
    status,
    reason,
    score,
    interval,
    scored: result.n_scored,
    expected: result.n_expected,
    step: result.train_step,
    at: result.finished_at,
    hasSamples: result.has_samples,
    previous: change(result.metrics, 'vs_previous'),
    sameWeights: /bit for bit/.test(result.detail ?? ''),
  };
}
