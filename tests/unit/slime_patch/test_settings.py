"""Settings: what fits together, and what is refused with the way out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from live_eval.errors import ConfigError
from slime_patch.settings import settings_of

if TYPE_CHECKING:
    from fakes.slime_standins import Parse

DATA = "--eval-prompt-data toy toy.jsonl"
LIVE = f"--eval-mode latest-synced --eval-num-gpus 1 {DATA}"


MAIL = "/shared/weights/live_eval"
FILES = {"update_weight_transport": "disk", "update_weight_disk_dir": "/shared/weights"}


def test_inline_asks_for_nothing(parse: Parse) -> None:
    assert settings_of(*parse("--eval-interval 5 " + DATA, colocate=True)) is None


def test_flags_without_the_mode_are_refused(parse: Parse) -> None:
    with pytest.raises(ConfigError, match="--eval-num-gpus does nothing in --eval-mode inline"):
        settings_of(*parse("--eval-num-gpus 1"))


def test_a_live_job(parse: Parse, tmp_path: Path) -> None:
    settings = settings_of(
        *parse(
            LIVE + " --eval-interval 5 --eval-on-update queue --skip-eval-before-train", save=str(tmp_path)
        )
    )
    assert settings is not None
    assert (settings.interval, settings.on_update, settings.skip_first) == (5, "queue", True)
    assert settings.output_dir == tmp_path / "live_eval"
    assert settings.base == tmp_path
    assert settings.steps_per_rollout == 1
    assert [plan.name for plan in settings.datasets] == ["toy"]
    assert settings.taps_syncs


@pytest.mark.parametrize(
    ("line", "changes", "kind", "transport", "mail_dir", "num_sources"),
    [
        ("", {"pipeline_model_parallel_size": 2}, "broadcast", "ray", None, 2),
        ("--eval-transport nccl", {"pipeline_model_parallel_size": 2}, "broadcast", "nccl", None, 2),
        ("--eval-transport disk --eval-transport-dir /mail", {}, "broadcast", "disk", "/mail", 1),
        ("--eval-transport disk", {}, "broadcast", "disk", None, 1),
        ("", {"colocate": True, "pipeline_model_parallel_size": 2}, "tensors", "ray", None, 1),
        ("", FILES, "files", "disk", MAIL, 1),
        (
            "",
            FILES | {"colocate": True, "release_train": True},
            "files",
            "disk",
            MAIL,
            1,
        ),
        ("", FILES | {"update_weight_mode": "delta"}, "deltas", "disk", MAIL, 1),
    ],
)
def test_each_way_to_update_weights_has_its_way_here(
    parse: Parse,
    line: str,
    changes: dict[str, object],
    kind: str,
    transport: str,
    mail_dir: str | None,
    num_sources: int,
) -> None:
    settings = settings_of(*parse(f"{LIVE} {line}", **changes))
    assert settings is not None and settings.updates is not None
    updates = settings.updates
    assert (updates.kind, updates.transport, updates.num_sources) == (kind, transport, num_sources)
    assert updates.mail_dir == (None if mail_dir is None else Path(mail_dir))
    assert updates.first_push_has_version == (kind != "deltas")


def test_engines_and_their_size(parse: Parse) -> None:
    settings = settings_of(
        *parse(f"--eval-mode latest-synced --eval-num-gpus 4 --eval-num-gpus-per-engine 2 {DATA}")
    )
    assert settings is not None
    assert settings.engines.num_engines == 2


def test_running_engines(parse: Parse) -> None:
    settings = settings_of(
        *parse(f"--eval-mode latest-synced {DATA} --eval-engine-addrs 10.0.0.1:30000 http://h:1/")
    )
    assert settings is not None
    assert settings.engines.addresses == ("http://10.0.0.1:30000", "http://h:1")
    assert settings.engines.num_engines == 2


@pytest.mark.parametrize(
    ("line", "changes", "message"),
    [
        (f"--eval-mode latest-synced {DATA}", {}, "needs engines of its own: give --eval-num-gpus N"),
        (
            "--eval-mode latest-synced --eval-num-gpus 1",
            {},
            "nothing to evaluate on: give --eval-prompt-data",
        ),
        (LIVE + " --eval-num-gpus 3 --eval-num-gpus-per-engine 2", {}, "first a multiple of the second"),
        (LIVE + " --eval-engine-addrs h:1", {}, "leave --eval-num-gpus and --eval-sglang"),
        (f"--eval-mode latest-synced {DATA} --eval-engine-addrs host", {}, "give HOST:PORT"),
        (LIVE + " --eval-engines-per-eval half", {}, "--eval-engines-per-eval is 'half': give all, fair or"),
        (LIVE + " --eval-engines-per-eval 0", {}, "--eval-engines-per-eval is '0': give all, fair or"),
        (LIVE + " --eval-transport nccl", {"offload_train": True}, "destroys all groups .*transport ray"),
        (
            f"--eval-mode latest-synced {DATA} --eval-engine-addrs h:1 --eval-transport nccl",
            {},
            "needs one of the eval engines' GPUs",
        ),
        (LIVE + " --eval-wandb-run attach", {}, "trainer's W&B run: give --use-wandb"),
        (LIVE + " --eval-engine-timeout-s 0", {}, "--eval-engine-timeout-s is 0.0: give more than 0"),
        (LIVE + " --eval-transport nccl", {"colocate": True}, "no group that the receiver could join"),
        (LIVE + " --eval-transport ray", FILES, "these updates are files"),
        (LIVE + " --eval-transport-dir d", FILES, "linked below --update-weight-disk-dir"),
        (LIVE + " --eval-transport-dir d", {}, "read with --eval-transport disk only"),
        (LIVE, {"debug_rollout_only": True}, "no weights are sent"),
        ("--eval-mode checkpoint --eval-num-gpus 1 " + DATA, {}, "name them with --eval-checkpoint"),
        (LIVE + " --eval-interval 0", {}, "--eval-interval is 0"),
        (LIVE + " --eval-queue-size 0", {}, "--eval-queue-size is 0: give 1 or more"),
        (LIVE + " --eval-keep-versions -1", {}, "--eval-keep-versions is -1: give 0 or more"),
        (LIVE, {"hf_checkpoint": "Qwen/Qwen2.5-0.5B"}, "is no directory"),
        (LIVE, {"eval_mode": "sideways"}, "choose one of inline, latest-synced, checkpoint"),
    ],
)
def test_what_cannot_work_says_what_to_change(
    parse: Parse, line: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(*parse(line, **changes))


def test_checkpoints_need_no_sync_that_can_be_listened_to(parse: Parse) -> None:
    settings = settings_of(
        *parse(f"--eval-mode checkpoint --eval-num-gpus 1 {DATA} --eval-checkpoint a b", colocate=True)
    )
    assert settings is not None
    assert not settings.taps_syncs
    assert settings.checkpoints == (str(Path("a").absolute()), str(Path("b").absolute()))


def test_a_folder_to_watch_is_enough_for_checkpoint_mode(parse: Parse) -> None:
    line = f"--eval-mode checkpoint --eval-num-gpus 1 {DATA} --eval-checkpoint-watch out"
    settings = settings_of(*parse(line))
    assert settings is not None
    assert (settings.checkpoints, settings.watch) == ((), (Path("out").absolute(),))


def test_wandb_is_the_trainers_project_with_its_key_outside_of_the_configuration(parse: Parse) -> None:
    settings = settings_of(
        *parse(
            LIVE, use_wandb=True, wandb_project="p", wandb_group="g", wandb_key="secret", wandb_mode="online"
        )
    )
    assert settings is not None and settings.wandb is not None
    assert settings.wandb.environment == {"WANDB_API_KEY": "secret"}
    assert "secret" not in repr(settings)
    config = settings.wandb.config(Path("/run"), group="g_abc", shown={})
    assert (config.project, config.group, config.name) == ("p", "g_abc", "g_abc-live-eval")
    assert (config.sample_rows, config.alerts) == (0, ())


def test_samples_are_told_to_wandb_only_when_asked_for(parse: Parse) -> None:
    settings = settings_of(*parse(LIVE + " --eval-wandb-samples 5", use_wandb=True, wandb_project="p"))
    assert settings is not None and settings.wandb is not None
    assert settings.wandb.config(Path("/run"), group=None, shown={}).sample_rows == 5


def test_the_page_is_there_where_a_host_or_a_port_is_given(
    parse: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = settings_of(*parse(LIVE))
    assert off is not None and off.http is None
    on = settings_of(*parse(LIVE + " --eval-http-port 8900", save="/save"))
    assert on is not None and on.http is not None
    assert (on.http.host, on.http.port, on.http.checkpoint_roots) == ("127.0.0.1", 8900, (Path("/save"),))
    with pytest.raises(ConfigError, match="give a token"):
        settings_of(*parse(LIVE + " --eval-http-host 0.0.0.0"))
    monkeypatch.setenv("LIVE_EVAL_HTTP_TOKEN", "0123456789abcdef0123456789abcdef")
    wide = settings_of(*parse(LIVE + " --eval-http-host 0.0.0.0"))
    assert wide is not None and "0123456789abcdef" not in repr(wide)


def test_slimes_eval_function_knows_the_eval_engines_only(parse: Parse) -> None:
    with pytest.raises(ConfigError, match="models of --sglang-config"):
        settings_of(*parse(LIVE + " --eval-runner slime", sglang_config="models.yaml"))


def test_a_trainers_run_is_attached_only_when_asked_for_and_with_a_warning(
    parse: Parse, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(*parse(LIVE, use_wandb=True, wandb_project="p"))
    assert settings is not None and not settings.attach_wandb and settings.wandb is not None
    assert not caplog.records
    settings = settings_of(*parse(LIVE + " --eval-wandb-run attach", use_wandb=True, wandb_project="p"))
    assert settings is not None and settings.attach_wandb and settings.wandb is None
    assert "go into the trainer's W&B run" in caplog.text


def test_no_wandb_where_slime_has_none(parse: Parse) -> None:
    settings = settings_of(*parse(LIVE, use_wandb=True, wandb_mode="disabled"))
    assert settings is not None and settings.wandb is None
