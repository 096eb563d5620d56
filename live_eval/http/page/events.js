// Server-sent events over fetch: with the last id after a break, a watch on silence, and a state that people see.
// EventSource is not used, since it hides the status of an answer and the comments that tell life from silence.
import { API } from './api.js';

const SILENCE_MS = 40000;
const SHORTEST_MS = 500;
const LONGEST_MS = 15000;

export class Events {
  /** onEvent(name, data), onState({state, retryAt, why}). States: connecting, open, waiting. */
  constructor({ onEvent, onState }) {
    this.onEvent = onEvent;
    this.onState = onState;
    this.lastId = '';
    this.pause = SHORTEST_MS;
    this.stopped = true;
  }

  start(lastId) {
    this.lastId = lastId ?? '';
    if (!this.stopped) return;
    this.stopped = false;
    this.run();
  }

  stop() {
    this.stopped = true;
    this.abort?.abort();
    this.wake?.();
  }

  /** Do not wait any longer. */
  retryNow() {
    this.pause = SHORTEST_MS;
    this.wake?.();
  }

  async run() {
    while (!this.stopped) {
      this.onState({ state: 'connecting' });
      const { why, after } = await this.connection();
      if (this.stopped) return;
      const wait = after ?? this.pause;
      this.pause = Math.min(LONGEST_MS, this.pause * 2);
      this.onState({ state: 'waiting', retryAt: Date.now() + wait, why });
      await new Promise((done) => {
        const timer = setTimeout(done, wait);
        this.wake = () => (clearTimeout(timer), done());
      });
    }
  }

  /** One connection from its begin to its end; why it ended. */
  async connection() {
    this.abort = new AbortController();
    let watch = this.watch();
    try {
      const response = await fetch(`${API}events`, {
        headers: { Accept: 'text/event-stream', ...(this.lastId && { 'Last-Event-ID': this.lastId }) },
        credentials: 'same-origin',
        cache: 'no-store',
        signal: this.abort.signal,
      });
      if (response.status === 401) document.dispatchEvent(new CustomEvent('needs-token'));
      if (!response.ok) return refused(response);
      this.onState({ state: 'open' });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new Parser((event) => this.take(event));
      while (true) {
        clearTimeout(watch);
        watch = this.watch();
        const { done, value } = await reader.read();
        if (done) return { why: 'the service closed the connection' };
        this.pause = SHORTEST_MS;
        parser.feed(value);
      }
    } catch {
      return { why: 'the service cannot be reached' };
    } finally {
      clearTimeout(watch);
      this.abort.abort();
    }
  }

  watch() {
    const { abort } = this;
    return setTimeout(() => abort.abort(), SILENCE_MS);
  }

  take({ id, name, data }) {
    if (id) this.lastId = id;
    let value;
    try {
      value = JSON.parse(data);
    } catch {
      return;
    }
    this.onEvent(name, value);
  }
}

function refused(response) {
  const seconds = Number(response.headers.get('Retry-After'));
  return { why: `the service answered ${response.status}`, after: seconds > 0 ? seconds * 1000 : undefined };
}

/** The event stream format, fed in pieces of any size. */
export class Parser {
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = '';
    this.clear();
  }

  clear() {
    this.event = { id: '', name: 'message', data: null };
  }

  feed(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    lines.forEach((line) => this.line(line));
  }

  line(line) {
    if (line === '') {
      if (this.event.data !== null) this.onEvent(this.event);
      return this.clear();
    }
    const [, field, value] = /^([^:]*)(?::[ ]?(.*))?$/s.exec(line);
    if (field === 'id') this.event.id = value ?? '';
    else if (field === 'event') this.event.name = value ?? '';
    else if (field === 'data') this.event.data = (this.event.data === null ? '' : `${this.event.data}\n`) + (value ?? '');
  }
}
