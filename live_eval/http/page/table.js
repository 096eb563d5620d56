// A table whose rows are kept from one drawing to the next: a cell is made anew only if what it shows changed.
import { h, keyed, slot } from './dom.js';

/** columns: {name, cls, value(item), cell(item)}; `value` is what decides whether the cell is drawn anew. */
export function table({ caption, columns, key }) {
  const body = h('tbody', { role: 'rowgroup' });
  const head = h('tr', { role: 'row' }, columns.map((column) => h('th', { scope: 'col', role: 'columnheader', class: column.cls }, column.name)));
  const node = h('table', { role: 'table' }, h('caption', { class: 'hidden-text' }, caption), h('thead', { role: 'rowgroup' }, head), body);

  function row() {
    const cells = columns.map((column) => h('td', { role: 'cell', class: column.cls, 'data-label': column.name || null }));
    const slots = columns.map((column, at) => slot(cells[at], (_, item) => column.cell(item)));
    return {
      node: h('tr', { role: 'row' }, cells),
      update(item) {
        columns.forEach((column, at) => {
          const value = column.value(item);
          cells[at].classList.toggle('blank', value === '' || value === null);
          slots[at](value, item);
        });
      },
    };
  }

  return { node, show: (items) => keyed(body, items, key, row) };
}

/** "1 to 50 of 3,204", and buttons for the pages before and behind. */
export function pager(onMove, [before, behind] = ['Newer', 'Older']) {
  const text = h('span', {});
  const back = h('button', { type: 'button', class: 'button small', onclick: () => onMove(-1) }, before);
  const forth = h('button', { type: 'button', class: 'button small', onclick: () => onMove(1) }, behind);
  const node = h('div', { class: 'pager' }, text, h('div', { class: 'end' }, back, forth));
  return {
    node,
    show({ total, offset, count }) {
      node.hidden = total === 0;
      if (total === 0) return;
      text.textContent = `${(offset + 1).toLocaleString('en')} to ${(offset + count).toLocaleString('en')} of ${total.toLocaleString('en')}`;
      back.disabled = offset === 0;
      forth.disabled = offset + count >= total;
    },
  };
}
