// Dialogs: the browser's own element keeps the focus inside, closes on Escape and gives the focus back.
import { h, put } from './dom.js';
import { trouble } from './parts.js';

/**
 * Show a form; `act` is tried on submit, and what it throws is shown in the dialog. Closes when it returns.
 * first: the element that has the focus.
 */
export function formDialog({ title, content, word, danger = false, closeWord = 'Close', act, first }) {
  const problem = h('div', {});
  const close = h('button', { type: 'button', class: 'button', onclick: () => node.close() }, closeWord);
  const go = h('button', { type: 'submit', class: `button ${danger ? 'danger solid' : 'primary'}` }, word);
  const heading = h('h2', { id: 'dialog-title' }, title);
  const form = h('form', { method: 'dialog', novalidate: true, onsubmit: submit }, heading, content, problem, h('div', { class: 'actions' }, close, go));
  const node = h('dialog', { 'aria-labelledby': 'dialog-title', onclose: () => node.remove() }, form);

  async function submit(event) {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    put(problem);
    try {
      await act();
      node.close();
    } catch (error) {
      put(problem, trouble(error));
    } finally {
      go.disabled = false;
    }
  }

  document.body.append(node);
  node.showModal();
  (first ?? close).focus();
  return node;
}
