// From the lane's spans to what is drawn in which row. Pure: lists in, lists out.
import { clock, duration } from './format.js';
import { reasonWord, stateWord } from './words.js';

const MOST_WAITING = 8;

/** Targets that were evaluated or waited in the window, in the order in which they were asked for. */
export const evaluations = (lane) => [...new Set([...lane.jobs].sort((a, b) => (a.requested ?? a.begin) - (b.requested ?? b.begin)).map((job) => job.target))];

/** {syncs, waiting: rows of spans, engines: [{name, note, spans}]}; each span has begin, end, cls, part. */
export function laneRows(lane, engines, to) {
  return {
    syncs: lane.syncs.map((each) => ({
      begin: each.begin,
      end: each.end ?? to,
      open: each.end === null,
      cls: each.outcome === 'discarded' ? 'sync discarded' : each.end === null ? 'sync open' : 'sync',
      text: each.policy_version === null ? '' : `v${each.policy_version}`,
      icon: each.outcome === 'discarded' ? 'discarded' : null,
      part: { kind: 'sync', target: each.policy_version === null ? null : `v${each.policy_version}`, ...each },
    })),
    waiting: packed(waits(lane.jobs, to)),
    engines: lane.engines.map(({ name, spans }) => ({
      name,
      state: engines.find((each) => each.name === name) ?? null,
      spans: [...spans.map((span) => engineSpan(name, span, to)), ...jobSpans(spans, lane.jobs, to)],
    })),
  };
}

function engineSpan(name, span, to) {
  return {
    begin: span.begin,
    end: span.end ?? to,
    open: span.end === null,
    cls: { load: 'load', eval: 'held', down: 'down' }[span.kind] ?? 'held',
    text: span.kind === 'eval' ? '' : span.kind === 'down' ? span.detail : (span.target ?? ''),
    plate: true,
    icon: span.kind === 'load' && span.outcome === 'failed' ? 'failed' : null,
    part: { engine: name, ...span },
  };
}

/** Jobs as bars within the times for which the engine held their target. */
function jobSpans(spans, jobs, to) {
  const found = [];
  const held = spans.filter((span) => span.kind === 'eval');
  const begun = new Set();
  for (const job of [...jobs].sort((a, b) => a.begin - b.begin)) {
    if (job.begin === null) continue;
    const end = job.end ?? to;
    const span = held.find((each) => each.target === job.target && each.begin <= end && (each.end ?? to) >= job.begin);
    if (!span) continue;
    const first = !begun.has(span); // one name for all datasets of a version
    begun.add(span);
    found.push({
      begin: Math.max(job.begin, span.begin),
      end: Math.min(end, span.end ?? to),
      open: job.end === null,
      inner: true,
      cls: `job ${job.status}`,
      text: first ? `${job.target} ${job.dataset}` : job.dataset,
      shortText: first ? job.target : null,
      icon: ['succeeded', 'running', 'waiting'].includes(job.status) ? null : job.status,
      part: { kind: 'job', jobId: job.job_id, ...job },
    });
  }
  return found;
}

/** One span for each evaluation that waited: from when it was asked for to its first job, or its end. */
function waits(jobs, to) {
  const groups = new Map();
  for (const job of jobs) {
    if (job.requested === null || (job.attempt > 1 && job.begin !== null)) continue;
    const group = groups.get(job.target) ?? { target: job.target, requested: Infinity, begin: Infinity, end: -Infinity, open: false, job };
    group.requested = Math.min(group.requested, job.requested);
    if (job.begin !== null) group.begin = Math.min(group.begin, job.begin);
    if (job.end === null) group.open = true;
    else group.end = Math.max(group.end, job.end);
    groups.set(job.target, group);
  }
  return [...groups.values()].map(({ target, requested, begin, end, open, job }) => {
    const ran = begin !== Infinity;
    return {
      begin: requested,
      end: ran ? begin : open ? to : end,
      open: !ran && open,
      cls: 'wait',
      text: target,
      plate: true,
      icon: ran || open ? null : job.status,
      part: { ...job, kind: 'wait', target, jobId: job.job_id, ran },
    };
  });
}

/** Spans that overlap come into rows of their own; what does not fit goes into the last one. */
function packed(spans) {
  const rows = [];
  for (const span of [...spans].sort((a, b) => a.begin - b.begin)) {
    const row = rows.find((each) => each.at(-1).end <= span.begin) ?? (rows.length < MOST_WAITING ? rows[rows.push([]) - 1] : rows.at(-1));
    row.push(span);
  }
  return rows;
}

/** One sentence, or a few, about a span or about all that happened to a target. */
export function describe(part, lane) {
  const times = (begin, end) => `${clock(begin)} to ${end === null ? 'now' : clock(end)}${end === null ? '' : ` (${duration(end - begin)})`}`;
  const why = (reason) => (reason ? `: ${reasonWord(reason)}` : '');
  if (part.kind === 'sync')
    return `Sync of ${part.target ?? `weight version ${part.weight_version}`}, ${times(part.begin, part.end)}, ${part.outcome ? stateWord(part.outcome).toLowerCase() : 'under way'}${why(part.reason)}.`;
  if (part.kind === 'down') return `${part.engine} was not usable, ${times(part.begin, part.end)}: ${part.detail}.`;
  if (part.kind === 'load') return `${part.engine} loaded ${part.target}, ${times(part.begin, part.end)}${part.outcome === 'ok' ? '' : `, ${part.outcome}`}. ${part.detail}`;
  if (part.kind === 'eval') return `${part.engine} held ${part.target}, ${times(part.begin, part.end)}.`;
  if (part.kind === 'job') return `${part.job_id}, ${times(part.begin, part.end)}: ${stateWord(part.status).toLowerCase()}${why(part.reason)}.`;
  return history(part.target, lane, { times, why });
}

function history(target, lane, { times, why }) {
  const sync = lane.syncs.find((each) => each.policy_version !== null && `v${each.policy_version}` === target);
  const jobs = lane.jobs.filter((job) => job.target === target);
  const asked = jobs.find((job) => job.requested !== null);
  const began = jobs.filter((job) => job.begin !== null);
  const waited = asked && began.length ? Math.min(...began.map((job) => job.begin)) - asked.requested : null;
  return [
    `${target}: `,
    sync && `synced ${clock(sync.begin)}, `,
    asked && `asked for ${clock(asked.requested)}, `,
    waited !== null && `waited ${duration(waited)}, `,
    jobs.map((job) => `${job.dataset} ${stateWord(job.status).toLowerCase()}${['waiting', 'running', 'succeeded'].includes(job.status) ? '' : why(job.reason)}${job.begin !== null ? ` (${times(job.begin, job.end)})` : ''}`).join('; '),
    '.',
  ].filter(Boolean).join('');
}
