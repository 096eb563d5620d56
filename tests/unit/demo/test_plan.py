"""What a demo makes before it starts anything, and what it refuses to touch."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from safetensors import SafetensorError

from live_eval.config import ServiceConfig
from live_eval.demo.model import write_base
from live_eval.demo.plan import MARKER, DemoOptions, earlier_run, prepare, service_config
from live_eval.errors import ConfigError, CorruptVersion
from live_eval.rundir import RunDir


@pytest.fixture
def options(tmp_path: Path) -> DemoOptions:
    return DemoOptions(
        out=tmp_path / "run",
        num_versions=4,
        seed=5,
        transport="ray",
        on_update="queue",
        interval=2,
        num_samples=3,
        checkpoints=(),
        num_engines=2,
        json_file=None,
    )


def test_a_directory_that_no_demo_made_is_refused_and_left_as_it_is(options: DemoOptions) -> None:
    options.out.mkdir()
    (options.out / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="no demo made it"):
        prepare(options)
    assert (options.out / "thesis.tex").read_text() == "years of work"


def test_a_port_brings_the_page_and_lets_versions_of_the_run_be_evaluated_from_it(
    options: DemoOptions,
) -> None:
    run_dir = RunDir(options.out)
    assert service_config(options, run_dir, "run").http is None
    http = service_config(replace(options, http_port=8123), run_dir, "run").http
    assert http is not None
    assert (http.host, http.port, http.checkpoint_roots) == ("127.0.0.1", 8123, (run_dir.store,))


def test_a_port_that_is_taken_is_refused_before_anything_is_made(options: DemoOptions) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: .*give another port"):
            prepare(replace(options, http_port=port))
    assert not options.out.exists()


def test_when_an_earlier_demo_began_is_known_until_it_is_replaced(options: DemoOptions) -> None:
    assert earlier_run(options.out) == ""
    options.out.mkdir()
    assert earlier_run(options.out) == ""
    (options.out / MARKER).touch()
    began = datetime(2026, 1, 2, 3, 4)
    os.utime(options.out / MARKER, (began.timestamp(), began.timestamp()))
    assert earlier_run(options.out) == "2026-01-02 03:04"


def test_an_earlier_demo_is_replaced_though_its_versions_are_read_only(options: DemoOptions) -> None:
    version = options.out / "store" / "versions" / "v000001"
    version.mkdir(parents=True)
    (options.out / MARKER).touch()
    (version / "model.safetensors").write_bytes(b"old")
    version.chmod(0o555)
    run_dir = prepare(options)
    assert not version.exists()
    assert (run_dir.base / "model.safetensors").exists()
    assert len((run_dir.data / "eval-rev.jsonl").read_text().splitlines()) == 64


def test_a_checkpoint_that_is_none_is_refused_before_anything_is_removed(
    options: DemoOptions, tmp_path: Path
) -> None:
    options.out.mkdir()
    (options.out / MARKER).touch()
    with pytest.raises(CorruptVersion, match="no such directory"):
        prepare(replace(options, checkpoints=(tmp_path / "nowhere",)))
    assert (options.out / MARKER).exists()


def test_the_options_reach_the_service_and_its_configuration_survives_the_file(
    options: DemoOptions, tmp_path: Path
) -> None:
    config = service_config(options, RunDir(options.out), "run-1")
    assert config.scheduler.on_update == "queue"
    assert config.scheduler.interval == 2
    assert [dataset.n for dataset in config.datasets] == [3, 3]
    assert config.datasets[0].sampling.temperature > 0
    assert config.engines.num_engines == 2
    config.save(tmp_path / "config.json")
    assert ServiceConfig.load(tmp_path / "config.json") == config


def test_a_single_answer_a_prompt_is_greedy(options: DemoOptions) -> None:
    config = service_config(replace(options, num_samples=1), RunDir(options.out), "run-1")
    assert [dataset.sampling.temperature for dataset in config.datasets] == [0.0, 0.0]


def test_a_configuration_that_is_wrong_says_where(options: DemoOptions, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    service_config(options, RunDir(options.out), "run-1").save(path)
    path.write_text(path.read_text().replace('"interval": 2', '"interval": "two"'))
    with pytest.raises(ConfigError, match=r"config\.json: .*interval"):
        ServiceConfig.load(path)
    path.write_text("{")
    with pytest.raises(ConfigError, match="truncated"):
        ServiceConfig.load(path)


def test_a_file_in_place_of_the_directory_is_refused(options: DemoOptions) -> None:
    options.out.write_text("notes")
    with pytest.raises(ConfigError, match="is no directory"):
        prepare(options)


def test_a_place_that_cannot_be_written_is_refused_with_what_to_do(options: DemoOptions) -> None:
    options.out.mkdir()
    (options.out / MARKER).mkdir()
    with pytest.raises(ConfigError, match="give another --out"):
        prepare(options)


def test_a_full_disk_is_told_with_what_to_do(options: DemoOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *, seed: int) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("live_eval.demo.plan.write_base", full)
    with pytest.raises(ConfigError, match=r"No space left on device.*free space there"):
        prepare(options)


def test_a_disk_that_cannot_hold_all_versions_is_refused_at_start(
    options: DemoOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("live_eval.store.place.free_bytes", lambda path: 1_000_000)
    with pytest.raises(ConfigError, match=r"the store needs .*4 kept \+ 2"):
        prepare(options)


def test_a_directory_in_which_a_demo_runs_is_refused_and_left_as_it_is(options: DemoOptions) -> None:
    run_dir = prepare(options)  # this process holds it from now on
    with pytest.raises(ConfigError, match="a demo is running in"):
        prepare(options)
    assert (run_dir.base / "model.safetensors").exists()


def test_a_checkpoint_of_the_demo_that_would_be_replaced_is_refused(options: DemoOptions) -> None:
    write_base(options.out / "base", seed=0)
    (options.out / MARKER).touch()
    with pytest.raises(ConfigError, match="would be removed"):
        prepare(replace(options, checkpoints=(options.out / "base",)))
    assert (options.out / "base" / "model.safetensors").exists()
