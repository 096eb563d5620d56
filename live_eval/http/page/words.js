// What states and reasons are called, and how serious they are.

const STATES = {
  waiting: ['Waiting', 'quiet'],
  running: ['Running', 'live'],
  succeeded: ['Succeeded', 'good'],
  failed: ['Failed', 'bad'],
  timed_out: ['Timed out', 'bad'],
  cancelled: ['Cancelled', 'warn'],
  superseded: ['Superseded', 'quiet'],
  dropped: ['Dropped', 'warn'],
  receiving: ['Receiving', 'live'],
  sealed: ['Sealed', 'good'],
  discarded: ['Discarded', 'bad'],
  collected: ['Collected', 'quiet'],
  starting: ['Starting', 'quiet'],
  serving: ['Serving', 'good'],
  draining: ['Draining', 'warn'],
  finished: ['Finished', 'quiet'],
  ready: ['Ready', 'quiet'],
  pinned: ['Pinned', 'good'],
  quarantined: ['Quarantined', 'bad'],
  dead: ['Dead', 'bad'],
};

const REASONS = {
  completed: 'completed',
  newer_version: 'a newer version came',
  queue_full: 'the queue was full',
  store_full: 'the store needed its bytes',
  version_discarded: 'its version was discarded',
  incarnation_ended: 'the trainer was started again',
  user: 'cancelled by a user',
  shutdown: 'the service was told to stop',
  drain_timeout: 'the time after training was over',
  job_timeout: 'it took too long',
  load_failed: 'the engines could not load it',
  corrupt_version: 'its files are not what they should be',
  pin_mismatch: 'the engine does not compute this version',
  mixed_version: 'a sample came from other weights',
  engine_failed: 'an engine died or did not answer',
  no_data: 'no sample could be scored',
  low_coverage: 'too few samples could be scored',
  version_gone: 'its files were lost',
  service_restarted: 'the service was started again',
  internal: 'a fault of live-eval',
  first_push: 'first push of the trainer',
  every: 'every version is due',
  interval: 'due by the interval',
  unnumbered: 'no rollout number: due',
  asked: 'asked for',
  last: 'last version of the run',
  checkpoint: 'asked for by a user',
  restored: 'taken up after a restart',
  retention: 'nobody needed it any more',
  make_room: 'a newer version needed its bytes',
  publisher_deadline: 'the trainer did not wait for the copy',
  publisher_aborted: 'the trainer gave it up',
  publisher_lost: 'the trainer was lost',
  source_deadline: 'a source never finished',
  superseded_by_begin: 'a new sync began before its end',
  incomplete: 'tensors were missing',
  digest_mismatch: 'bytes changed on the way',
  receiver_restarted: 'the receiver was started again',
  payload_lost: 'the bytes were lost on the way',
  group_failed: 'the group broke while receiving',
};

export const stateWord = (state) => STATES[state]?.[0] ?? String(state);
export const stateKind = (state) => STATES[state]?.[1] ?? 'quiet';

/** A reason in plain words; one that is not known stays as it is. */
export const reasonWord = (reason) => {
  const [name, more] = String(reason ?? '').split(': ');
  const word = REASONS[name] ?? name.replaceAll('_', ' ');
  return more ? `${word} (${more})` : word;
};

const METHODS = {
  wilson: "Wilson's interval",
  t: "Student's t by prompt",
  bonett_price: 'adjusted Wald for paired proportions',
  paired_t: "paired Student's t",
};

/** How an interval was made, in words; one that is not known stays as it is. */
export const methodWord = (method) => METHODS[method] ?? String(method ?? '').replaceAll('_', ' ');

export const isEnded = (status) => status !== 'waiting' && status !== 'running';
