// Where the service wants a token: it is asked for once, and the service gives a cookie for it.
import { post } from './api.js';
import { h } from './dom.js';
import { formDialog } from './dialog.js';

let open = null;

export function loginDialog(model) {
  if (open?.isConnected) return;
  const token = h('input', { type: 'password', id: 'token', autocomplete: 'current-password' });
  open = formDialog({
    title: 'This service wants a token',
    first: token,
    content: h('div', { class: 'field' }, h('label', { for: 'token' }, 'Token'), token, h('span', { class: 'hint' }, 'Whoever started the service knows it. It is sent once and kept as a cookie that scripts cannot read.')),
    word: 'Log in',
    act: async () => {
      await post('login', { token: token.value });
      model.again();
    },
  });
}
