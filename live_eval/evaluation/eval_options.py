"""slime's command-line options that say how evals are made, for commands without slime.

Owns their names and slime's defaults. Which of them fills which field of a dataset is for
`eval_settings`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {
    "input_key": "input",
    "label_key": None,
    "tool_key": "tools",
    "metadata_key": "metadata",
    "multimodal_keys": None,
    "apply_chat_template": False,
    "apply_chat_template_kwargs": {},
    "eval_input_key": None,
    "eval_label_key": None,
    "eval_tool_key": None,
    "n_samples_per_eval_prompt": 1,
    "eval_temperature": None,
    "eval_top_p": None,
    "eval_top_k": None,
    "eval_max_response_len": None,
    "eval_max_prompt_len": None,
    "eval_min_new_tokens": None,
    "eval_reward_key": None,
    "reward_key": None,
    "rm_type": None,
    "rm_url": None,
    "custom_rm_path": None,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "rollout_max_response_len": None,
    "rollout_stop": None,
    "rollout_stop_token_ids": None,
}
"""Option -> slime's default; None: not given."""


def add_eval_options(parser: argparse.ArgumentParser) -> None:
    """Add --eval-config, --eval-prompt-data and the options that fill what these leave open."""
    what = parser.add_argument_group("what is evaluated (slime's options)")
    what.add_argument("--eval-config", metavar="FILE.yaml", help="slime's eval configuration")
    what.add_argument(
        "--eval-prompt-data", nargs="+", metavar="NAME PATH", help="datasets by name and file, in pairs"
    )
    what.add_argument("--n-samples-per-eval-prompt", type=int, metavar="N", help="samples a prompt (1)")
    for name, kind, text in (
        ("eval-temperature", float, "0 is greedy (1.0)"),
        ("eval-top-p", float, "nucleus (1.0)"),
        ("eval-top-k", int, "-1: no limit (-1)"),
        ("eval-max-response-len", int, "tokens of an answer"),
        ("eval-max-prompt-len", int, "leave rows with longer prompts out"),
        ("eval-min-new-tokens", int, "least tokens of an answer"),
    ):
        what.add_argument(f"--{name}", type=kind, metavar="X", help=text)
    for name, text in (
        ("eval-input-key", "field of the prompt (input)"),
        ("eval-label-key", "field of the expected answer"),
        ("eval-tool-key", "field of the tools (tools)"),
        ("input-key", "as --eval-input-key"),
        ("label-key", "as --eval-label-key"),
        ("tool-key", "as --eval-tool-key"),
        ("metadata-key", "field of the metadata (metadata)"),
    ):
        what.add_argument(f"--{name}", metavar="FIELD", help=text)
    what.add_argument("--apply-chat-template", action="store_true", default=None, help="prompts are chats")
    what.add_argument(
        "--apply-chat-template-kwargs", type=json.loads, metavar="JSON", help="settings of the template"
    )
    what.add_argument("--rollout-stop", nargs="+", metavar="TEXT", help="texts at which an answer ends")
    what.add_argument(
        "--rollout-stop-token-ids", nargs="+", type=int, metavar="ID", help="tokens at which an answer ends"
    )
    for name, text in (
        ("rm-type", "rule of the reward: math, dapo, deepscaler, f1, gpqa, random, remote_rm, or boxed_RULE"),
        ("rm-url", "where remote_rm asks"),
        ("custom-rm-path", "dotted path of a reward function"),
        ("eval-reward-key", "which number of a reward that is a dict"),
    ):
        what.add_argument(f"--{name}", metavar="X", help=text)


def with_defaults(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options under slime's defaults; one that is None counts as not given."""
    given = {name: value for name, value in (options or {}).items() if value is not None}
    return {**DEFAULTS, **given}
