// Cancelling a job: a button, a question, and what came of it.
import { post } from './api.js';
import { h, toast } from './dom.js';
import { formDialog } from './dialog.js';
import { isEnded } from './words.js';

/** A button for a job that waits or runs; null for any other. */
export function cancelButton(model, job) {
  if (isEnded(job.status)) return null;
  return h('button', { type: 'button', class: 'button small danger', 'aria-label': `Cancel ${job.job_id}`, 'data-focus': `cancel ${job.job_id}`, onclick: () => ask(model, model.active.get(job.job_id) ?? job) }, 'Cancel');
}

function ask(model, job) {
  const running = job.status === 'running';
  formDialog({
    title: `Cancel ${job.job_id}?`,
    content: h('p', {}, running
      ? `It has ${job.num_done} of ${job.num_expected} samples. They are kept, but are not a score. Other datasets of ${job.target} go on. This cannot be taken back.`
      : `It will not be evaluated. Other datasets of ${job.target} are not touched. This cannot be taken back.`),
    word: 'Cancel the job',
    closeWord: running ? 'Let it run' : 'Let it wait',
    danger: true,
    act: async () => {
      const told = await post('cancel', { job_id: job.job_id });
      toast(h('strong', {}, told.job_id), told.status === 'running' ? ' is being stopped.' : ' is cancelled.');
    },
  });
}
