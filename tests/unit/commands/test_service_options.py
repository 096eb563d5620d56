"""The options of `serve` and `eval` as the configuration that they make."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from live_eval.commands.service_options import add_service_options, service_config
from live_eval.config import ServiceConfig
from live_eval.errors import ConfigError
from live_eval.results.ledger import Ledger
from live_eval.rundir import RunDir

SETTINGS = ("--label-key", "label", "--eval-max-response-len", "4", "--engines", "4")


def parsed(tmp_path: Path, *words: str) -> argparse.Namespace:
    data = tmp_path / "a.jsonl"
    data.write_text('{"input": "x", "label": "y"}\n')
    parser = argparse.ArgumentParser()
    add_service_options(parser)
    return parser.parse_args(["--eval-prompt-data", "a", str(data), *SETTINGS, *words])


@pytest.mark.parametrize(("words", "per_eval"), [((), "fair"), (("all",), "all"), (("2",), 2)])
def test_engines_are_shared_as_asked_for_and_read_back_so(
    tmp_path: Path, words: tuple[str, ...], per_eval: object
) -> None:
    args = parsed(tmp_path, *(("--engines-per-eval", *words) if words else ()))
    config = service_config(args, run_dir=tmp_path / "run", base=tmp_path)
    config.save(tmp_path / "config.json")
    read = ServiceConfig.load(tmp_path / "config.json")
    assert read == config
    assert (read.schedule.engines_per_eval, read.schedule.num_engines) == (per_eval, 4)


@pytest.mark.parametrize("run_id", ["demo-1", "slime-2"])
def test_the_directory_of_a_run_with_a_trainer_is_refused(tmp_path: Path, run_id: str) -> None:
    """Its policy versions would be collected: to a service without a trainer they are all over."""
    run = RunDir(tmp_path / "run")
    run.make()
    Ledger.open(run.ledger, run_id=run_id).close()
    with pytest.raises(ConfigError, match=rf"a run with a trainer \({run_id}\).*give another --out"):
        service_config(parsed(tmp_path), run_dir=run.root, base=tmp_path)


def test_a_directory_with_anything_else_in_it_is_refused(tmp_path: Path) -> None:
    args = parsed(tmp_path)
    run = RunDir(tmp_path / "run")
    run.make()  # as far as a start came that was ended
    assert service_config(args, run_dir=run.root, base=tmp_path).run_id.startswith("eval-")
    (run.root / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="not empty, and neither eval nor serve made it"):
        service_config(args, run_dir=run.root, base=tmp_path)
    with pytest.raises(ConfigError, match="no directory"):
        service_config(args, run_dir=run.root / "thesis.tex", base=tmp_path)


def test_a_run_of_its_own_is_continued(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.make()
    Ledger.open(run.ledger, run_id="eval-1").close()
    assert service_config(parsed(tmp_path), run_dir=run.root, base=tmp_path).run_id == "eval-1"


def test_engines_by_address_are_counted(tmp_path: Path) -> None:
    args = parsed(tmp_path, "--engine-address", "http://127.0.0.1:1", "http://127.0.0.1:2")
    assert service_config(args, run_dir=tmp_path / "run", base=tmp_path).schedule.num_engines == 2


def test_arguments_of_the_engines_are_given_as_the_help_says(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_service_options(parser)
    assert "--engine-args='--trust-remote-code'" in parser.format_help()
    args = parsed(tmp_path, "--engine-args=--trust-remote-code --mem-fraction-static 0.5")
    assert args.engine_args == ["--trust-remote-code", "--mem-fraction-static", "0.5"]


@pytest.mark.parametrize("word", ["0", "-1", "half", ""])
def test_a_part_that_is_none_is_refused(
    tmp_path: Path, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(tmp_path, f"--engines-per-eval={word}")
    assert "is neither all, fair nor a number of engines" in capsys.readouterr().err
