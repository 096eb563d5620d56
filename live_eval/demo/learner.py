"""The demo's supervised training loop: one call is one optimizer step.

It knows the model and the tasks, and nothing of syncs or evals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from live_eval.demo.model import EOS_ID, PAD_ID, make_tokenizer
from live_eval.demo.tasks import training_examples

BATCH_SIZE = 128
PEAK_LR = 2e-3
WARMUP_STEPS = 50
IGNORED = -100
"""Label of the positions that carry no loss: the prompt and the padding."""


class Learner:
    """Model, optimizer and data of one training run; one CPU thread."""

    def __init__(self, base: Path, *, seed: int, num_steps: int) -> None:
        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        self.tokenizer = make_tokenizer()
        self.step = 0
        self._num_steps = num_steps
        self._examples: Iterator[tuple[str, str]] = training_examples(seed)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=PEAK_LR, betas=(0.9, 0.98))

    def train_step(self) -> float:
        """One optimizer step on a fresh batch; returns the loss in nats per answer token."""
        input_ids, labels = self._batch()
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self._num_steps)
        loss = self.model(input_ids=input_ids, labels=labels).loss
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self.step += 1
        return float(loss.detach())

    def named_tensors(self) -> list[tuple[str, torch.Tensor]]:
        """The live parameters under their HF names, in a fixed order."""
        return [(name, parameter.detach()) for name, parameter in self.model.named_parameters()]

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(input ids, labels), both int64 [BATCH_SIZE, T]; loss on answer and <eos> only."""
        rows = []
        for prompt, answer in islice(self._examples, BATCH_SIZE):
            ids = self.tokenizer.encode(prompt), [*self.tokenizer.encode(answer), EOS_ID]
            rows.append(ids)
        width = max(len(prompt) + len(answer) for prompt, answer in rows)
        input_ids = torch.full((len(rows), width), PAD_ID, dtype=torch.int64)
        labels = torch.full((len(rows), width), IGNORED, dtype=torch.int64)
        for row, (prompt, answer) in enumerate(rows):
            end = len(prompt) + len(answer)
            input_ids[row, :end] = torch.tensor(prompt + answer)
            labels[row, len(prompt) : end] = torch.tensor(answer)
        return input_ids, labels


def learning_rate(step: int, num_steps: int) -> float:
    """Linear warm-up, then a cosine to a tenth of the peak."""
    if step < WARMUP_STEPS:
        return PEAK_LR * (step + 1) / WARMUP_STEPS
    progress = min(1.0, (step - WARMUP_STEPS) / max(1, num_steps - WARMUP_STEPS))
    return PEAK_LR * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))
