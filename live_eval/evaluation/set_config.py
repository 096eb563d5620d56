"""What one dataset is and how it is evaluated: values, checked when they are made.

Knows no files and no engines. Invariant: a configuration that exists can be carried out, as far as
that can be known before the file is opened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from live_eval.errors import ConfigError
from live_eval.evaluation.sampling import SamplingParams

EXACT_MATCH = "exact_match"
REMOTE = "remote_rm"
BOXED = "boxed_"
"""Before a rule's name: the rule gets what stands in the answer's last \\boxed{}."""
LABEL_RULES = ("math", "dapo", "deepscaler", "f1")
"""Rules that compare the answer with the label."""
RULES = (*LABEL_RULES, "gpqa", "random", REMOTE)
"""Names of slime's reward rules that are built in."""

RewardMode = Literal["single", "concurrent", "batch"]


def is_rule(name: str) -> bool:
    """Whether this is a built-in rule, `boxed_` or not."""
    return name.removeprefix(BOXED) in RULES


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalSetConfig:
    """One dataset and how it is evaluated; ConfigError at construction if values cannot be."""

    name: str
    path: Path
    """.jsonl or .parquet, also .gz; a slice of its rows as in `file.jsonl@[0:100]`."""
    prompt_key: str = "prompt"
    label_key: str | None = "label"
    """Field of the expected answer; None where the reward function needs none."""
    id_key: str | None = "id"
    """Field of the row id; a row without it, and every row if this is None, is known by its line number."""
    tool_key: str | None = None
    """Field of the tools that the chat template is given."""
    metadata_key: str | None = "metadata"
    """Field of the row's metadata, for reward functions; None: rows have none."""
    metadata_overrides: dict[str, Any] = field(default_factory=dict)
    """Put over each row's metadata."""
    apply_chat_template: bool = False
    """A prompt is a chat, or becomes one of one user message, and goes through the model's template."""
    apply_chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    special_tokens: bool = True
    """Whether a text that went through no template gets the tokenizer's special tokens (BOS)."""
    n: int = 1
    """Samples a row."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    reward: str = EXACT_MATCH
    """`exact_match`, a rule's name, or the dotted path of a function: `package.module.function`."""
    reward_by_row: bool = False
    """Whether a row's own rule, `rm_type` in its metadata, comes before `reward`."""
    row_function: str | None = None
    """Dotted path of what grades rows by their own rules, in place of the built-in ones."""
    reward_key: str | None = None
    """Which number of a reward function that returns a dict is the reward."""
    reward_url: str | None = None
    """Where the rule `remote_rm` asks."""
    reward_mode: RewardMode = "single"
    """`single`: a function gets one sample and is alone in its process. `concurrent`: an async function is
    called for up to `reward_batch_size` samples at a time. `batch`: a function gets a list of samples."""
    reward_batch_size: int = 32
    pass_threshold: float = 1.0
    """A sample passes (for pass@k) if its reward is at least this."""
    min_coverage: float = 0.9
    """Least share of the expected samples that must be scored for a score to be given."""
    min_samples: int | None = None
    """Least number of scored samples for a score; with it an eval that its time limit or an early stop ends
    has a score, whatever its coverage."""
    max_prompt_tokens: int | None = None
    """Longer prompts are not sent, where token ids are known; None leaves it to the engine."""
    drop_long_prompts: bool = False
    """Leave rows with longer prompts out when the file is read, counted, instead of counting their samples
    as errored."""
    eval_every: int = 1
    """Evaluate every so many due versions: the first, and then each `eval_every`-th; checkpoints always."""
    priority: int = 0
    """Datasets of a version are evaluated highest first, then as written."""
    timeout_s: float | None = None
    """Time limit of one eval of this dataset; None: the service's."""
    concurrency: int | None = None
    """Samples in flight over all engines; None: the service's."""
    early_stop_remaining: int | None = None
    early_stop_idle_s: float | None = None
    """End an eval of which fewer than `early_stop_remaining` samples are left, when none of them was answered
    and graded for so long. Both or neither."""

    @property
    def function(self) -> str | None:
        """The reward function's dotted path, None where the reward is a rule."""
        return None if self.reward == EXACT_MATCH or is_rule(self.reward) else self.reward

    @property
    def needs_tokenizer(self) -> bool:
        """Whether prompts become token ids here instead of in the engine."""
        return self.apply_chat_template or self.max_prompt_tokens is not None or not self.special_tokens

    def __post_init__(self) -> None:
        problem = self._bad_numbers() or self._bad_reward()
        if not self.name or len(self.name) > 80 or not _is_text(f"{self.name}{self.path}"):
            problem = f"name {self.name!r} must have 1 to 80 characters, and with its path be UTF-8 text"
        if problem:
            raise ConfigError(f"dataset {self.name!r}: {problem}")

    def _bad_numbers(self) -> str:
        for name in ("n", "eval_every", "reward_batch_size"):
            if (value := getattr(self, name)) < 1:
                return f"{name} is {value}: give 1 or more"
        for name in ("min_samples", "max_prompt_tokens", "concurrency", "early_stop_remaining"):
            if (value := getattr(self, name)) is not None and value < 1:
                return f"{name} is {value}: give 1 or more"
        for name in ("timeout_s", "early_stop_idle_s"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                return f"{name} is {value}: give a number of seconds above 0"
        if not 0.0 <= self.min_coverage <= 1.0:
            return f"min_coverage is {self.min_coverage}: give a share between 0 and 1"
        if not math.isfinite(self.pass_threshold):
            return f"pass_threshold is {self.pass_threshold}: give a finite number"
        if (self.early_stop_remaining is None) != (self.early_stop_idle_s is None):
            return "early_stop_remaining and early_stop_idle_s only work together: give both, or neither"
        return ""

    def _bad_reward(self) -> str:
        rule = self.reward.removeprefix(BOXED)
        if self.reward in (EXACT_MATCH, *LABEL_RULES) or rule in LABEL_RULES:
            if self.label_key is None and not self.reward_by_row:
                return f"{self.reward} needs a label: give label_key"
            if self.reward == EXACT_MATCH and self.reward_key is not None and not self.reward_by_row:
                return f"reward_key is {self.reward_key!r}, but exact_match returns a number"
        elif rule == "ifbench":
            return "the rule ifbench fetches its checks from the network: give a reward function of your own"
        elif not is_rule(self.reward) and not _is_dotted(self.reward):
            names = ", ".join((EXACT_MATCH, *RULES))
            return f"reward is {self.reward!r}: give one of {names}, or a path like package.module.function"
        if self.reward_by_row and self.reward != EXACT_MATCH and not is_rule(self.reward):
            return f"reward_by_row goes with rules only, and reward is {self.reward!r}"
        if rule == "dapo" and self.reward_key is None:
            return "dapo gives the numbers `score` and `acc`: give reward_key (slime's --eval-reward-key)"
        if rule == REMOTE and self.reward_url is None:
            return "remote_rm needs an address: give reward_url (slime's --rm-url)"
        if self.reward_url is not None and not self.reward_url.startswith(("http://", "https://")):
            return f"reward_url is {self.reward_url!r}: give an http:// or https:// address"
        if self.reward_mode not in get_args(RewardMode):
            return f"reward_mode is {self.reward_mode!r}: give one of {', '.join(get_args(RewardMode))}"
        return ""


def _is_text(text: str) -> bool:
    """Whether it can be kept and told; what stands on a command line are bytes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_dotted(path: str) -> bool:
    return "." in path and all(part.isidentifier() for part in path.split("."))
