"""A service's refusals, in the words of the command line."""

from __future__ import annotations

import pytest

from live_eval.commands.link import ByUrl, refusal
from live_eval.errors import TransportError


@pytest.mark.parametrize(
    ("code", "flag"),
    [("no_token", "--token-file"), ("wrong_token", "--token-file"), ("no_such_job", "`live-eval jobs`")],
)
def test_advice_for_clients_of_the_api_becomes_the_commands(code: str, flag: str) -> None:
    told = refusal(code, "it cannot be", "GET /api/v1/jobs, `Authorization: Bearer TOKEN`")
    assert told.startswith("it cannot be; ") and flag in told
    assert "GET" not in told and "Bearer" not in told and "[" not in told


def test_other_advice_stays_and_none_is_made_up() -> None:
    assert refusal("starting", "it is starting", "ask again") == "it is starting; ask again"
    assert refusal("config", "no dataset b; configured are: a", "GET /api/v1/status") == (
        "no dataset b; configured are: a"
    )
    assert refusal("internal", "it failed") == "it failed"


def test_a_directory_that_is_no_checkpoint_comes_with_what_to_do_once() -> None:
    assert refusal("corrupt_version", "/x: no such directory").endswith("safetensors checkpoint")
    told = "/x is a torch_dist checkpoint. Convert it with slime's tool: python tools/convert.py"
    assert refusal("corrupt_version", told, "Convert it with slime's tool: ...") == told


def test_who_is_not_there_is_told_with_what_to_do() -> None:
    link = ByUrl("http://127.0.0.1:9", token=None)
    with pytest.raises(TransportError, match=r"no service answers at .*; give the address that"):
        link.job("c1/rev")
