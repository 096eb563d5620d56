// A view of one list of the API: filters on top, a page of rows, kept up by events.
import { get } from './api.js';
import { h, put } from './dom.js';
import { empty, trouble } from './parts.js';
import { pager } from './table.js';

const LIMIT = 50;
const AGAIN_MS = 1000;

/** rows: a table; `changes` name what makes the page be read again, `mergeOn` what only redraws it. */
export function listView(model, { title, path, filters, rows, parameters, changes, merge = (items) => items, mergeOn, none }) {
  const note = h('div', {});
  const pages = pager((by) => ((offset = Math.max(0, offset + by * LIMIT)), load()));
  const node = h('div', { class: 'stack' }, h('div', { class: 'view-head' }, h('h1', {}, title)), h('section', { class: 'card', 'aria-label': title }, filters, rows.node, note, pages.node));
  let offset = 0;
  let items = [];
  let total = null;
  let request = 0;
  let timer = null;
  let asked = 0;
  let left = false;

  async function load() {
    clearTimeout(timer);
    timer = null;
    asked = Date.now();
    const number = ++request;
    try {
      const page = await get(path, { ...parameters, limit: LIMIT, offset });
      if (number !== request || left) return;
      if (page.items.length === 0 && offset > 0) return ((offset = 0), load());
      ({ items, total } = page);
      draw();
    } catch (error) {
      if (number === request && !left) put(note, h('div', { class: 'card-body' }, trouble(error)));
    }
  }

  function draw() {
    rows.node.hidden = items.length === 0;
    rows.show(merge(items));
    put(note, total === 0 ? empty(none) : '');
    pages.show({ total: total ?? 0, offset, count: items.length });
  }

  const view = {
    node,
    change(more) {
      Object.assign(parameters, more);
      offset = 0;
      load();
    },
    update(changed) {
      if (changed.has('all')) load();
      else if (changes.some((name) => changed.has(name)) && model.loaded) timer ??= setTimeout(load, Math.max(60, asked + AGAIN_MS - Date.now()));
      else if (mergeOn && changed.has(mergeOn)) draw();
    },
    leave: () => ((left = true), clearTimeout(timer)),
  };
  pages.show({ total: 0, offset: 0, count: 0 });
  rows.node.hidden = true;
  return view;
}
