// Asking for a checkpoint to be evaluated.
import { ApiError, post } from './api.js';
import { h, toast } from './dom.js';
import { formDialog } from './dialog.js';
import { jobLink } from './parts.js';

export function submitDialog(model) {
  const roots = model.status?.checkpoint_roots ?? [];
  const path = h('input', { type: 'text', id: 'checkpoint-path', name: 'path', autocomplete: 'off', spellcheck: 'false', 'aria-describedby': 'checkpoint-roots', value: roots.length === 1 ? `${roots[0].replace(/\/$/, '')}/` : '' });
  const boxes = model.datasetNames().map((name) => h('input', { type: 'checkbox', value: name, checked: true }));
  const priority = h('input', { type: 'number', id: 'checkpoint-priority', min: -100, max: 100, step: 1, value: '0' });
  formDialog({
    title: 'Evaluate a checkpoint',
    first: path,
    content: [
      h('div', { class: 'field' }, h('label', { for: 'checkpoint-path' }, 'Folder of the checkpoint'), path,
        h('span', { class: 'hint', id: 'checkpoint-roots' }, 'Absolute, in Hugging Face form with safetensors. It must lie in ', roots.map((root, at) => [at > 0 && ' or ', h('code', {}, root)]).flat(), '.')),
      h('div', { class: 'field', role: 'group', 'aria-label': 'Datasets' }, h('span', { class: 'label' }, 'Datasets'), h('div', { class: 'checks' }, boxes.map((box) => h('label', {}, box, box.value)))),
      h('div', { class: 'field' }, h('label', { for: 'checkpoint-priority' }, 'Priority, -100 to 100'), priority, h('span', { class: 'hint' }, 'Of the checkpoints that wait, the highest runs first. It goes on until it is done: newer versions do not cancel it.')),
    ],
    word: 'Evaluate',
    act: async () => {
      const datasets = boxes.filter((box) => box.checked).map((box) => box.value);
      if (!path.value.trim()) throw new ApiError(0, { what: 'the folder is missing', what_to_do: 'give the absolute path of a checkpoint' });
      if (boxes.length > 0 && datasets.length === 0) throw new ApiError(0, { what: 'no dataset is chosen', what_to_do: 'choose one or more' });
      if (!priority.value || !priority.checkValidity()) throw new ApiError(0, { what: 'the priority is not a whole number from -100 to 100', value: priority.value });
      const told = await post('checkpoints', { path: path.value.trim(), datasets, priority: Number(priority.value) });
      toast(h('strong', {}, told.target), ' will be evaluated: ', told.job_ids.map((id) => [' ', jobLink(id)]).flat());
    },
  });
}
