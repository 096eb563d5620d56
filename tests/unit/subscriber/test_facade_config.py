"""A receiver's settings survive its command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from live_eval.subscriber.facade_config import FacadeConfig

SMALL = FacadeConfig(socket=Path("/run/r.sock"), store=Path("/s"), base=Path("/b"), max_bytes=5)
FULL = FacadeConfig(
    socket=Path("/run/r r.sock"),
    store=Path("--store"),
    base=Path("-b"),
    max_bytes=1 << 40,
    keep_newest=7,
    allowed_absent=("model.mtp.*", "-x"),
    service_socket=Path("/run/service.sock"),
    deadline_s=0.1,
)


@pytest.mark.parametrize("config", [SMALL, FULL])
def test_arguments_parse_to_the_same_settings(config: FacadeConfig) -> None:
    assert FacadeConfig.parse(config.arguments()) == config


def test_a_wrong_command_line_ends_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        FacadeConfig.parse(["--socket=/x"])
    assert "--store" in capsys.readouterr().err
