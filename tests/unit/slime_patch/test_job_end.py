"""The end of a job at the driver: what is given back, in which order, also by Ctrl-C, once and twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fakes.driver_ray import DriverRay, RayError

from protocol.messages import JobResult
from slime_patch import job as job_module
from slime_patch.failure import EvalFailed
from slime_patch.job import LiveEvalJob
from slime_patch.settings import settings_of

if TYPE_CHECKING:
    from fakes.slime_standins import Parse

DATA = "--eval-num-gpus 1 --eval-prompt-data toy toy.jsonl "
RELEASED = [
    "trainer.live_eval_close",
    "receiver.read_all_mail",
    "trainer.__ray_call__",
    "kill trainer",
    "manager.__ray_terminate__",
    "kill manager",
    "remove slime's group",
]
ENDED = ["service.stop", "kill service", "kill receiver", "release"]


class Bench:
    """A job that has been started and attached."""

    def __init__(self, parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
        self._parse, self.ray = parse, DriverRay(monkeypatch)
        self._monkeypatch = monkeypatch
        self.drained = 0

    def job(
        self, line: str = "--eval-mode latest-synced", *, drain: BaseException | None = None
    ) -> LiveEvalJob:
        settings = settings_of(*self._parse(f"{line} {DATA}"))
        assert settings is not None
        made: Any = LiveEvalJob(settings)
        methods = ("live_eval_close",) if settings.taps_syncs else ()
        made.parts.service = self.ray.handle("service", "stop")
        made.parts.receiver = self.ray.handle("receiver", "read_all_mail") if settings.taps_syncs else None
        made.parts.place = SimpleNamespace(release=lambda: self.ray.log.append("release"))
        made._trainers = SimpleNamespace(_actor_handlers=[self.ray.handle("trainer", *methods)])
        made._rollout_manager = self.ray.handle("manager")
        made._groups = {"actor": ("slime's group", []), "rollout": ("slime's group", [])}
        self._monkeypatch.setattr(job_module, "drain", lambda service, budget_s: self._drain(drain))
        return made

    def _drain(self, error: BaseException | None) -> str:
        self.drained += 1
        if error is not None:
            raise error
        return "finished"


@pytest.fixture
def bench(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(parse, monkeypatch)


def test_slimes_gpus_go_back_before_the_rest_is_evaluated(bench: Bench) -> None:
    job = bench.job()
    job.finish()
    assert bench.ray.log == RELEASED + ENDED
    job.finish()
    job.abandon()
    assert bench.ray.log == RELEASED + ENDED
    assert bench.drained == 1


def test_trainers_without_a_tap_give_their_gpus_back_too(bench: Bench) -> None:
    bench.job("--eval-mode checkpoint --eval-checkpoint /c").finish()
    released = [call for call in RELEASED if "close" not in call and "mail" not in call]
    assert bench.ray.log == [*released, "service.stop", "kill service", "release"]


def test_ctrl_c_in_the_wait_ends_the_service_in_order(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.job(drain=KeyboardInterrupt()).finish()
    assert bench.ray.log == RELEASED + ENDED
    assert "interrupted; what is left is cancelled" in capsys.readouterr().out


def test_a_second_ctrl_c_ends_the_driver_at_once(bench: Bench) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    bench.ray.answers["service.stop"] = interrupted
    job = bench.job(drain=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        job.finish()
    job.abandon()  # from the exit hook: Ray ends what is left with the driver
    assert bench.ray.log == [*RELEASED, "service.stop"]


def test_a_service_that_does_not_end_is_killed(bench: Bench) -> None:
    def late() -> None:
        raise RayError("no answer")

    bench.ray.answers["service.stop"] = late
    bench.job().finish()
    assert bench.ray.log == RELEASED + ENDED


def test_a_failed_eval_after_training_is_an_error_once_all_is_given_back(bench: Bench) -> None:
    job = bench.job("--eval-mode latest-synced --eval-on-failure stop")
    job._failure.take(
        JobResult(
            result_id="r/v3/toy", job_id="v3/toy", dataset="toy", status="failed", reason="engine_failed"
        )
    )
    with pytest.raises(EvalFailed, match="v3/toy ended as failed"):
        job.finish()
    assert bench.ray.log == RELEASED + ENDED
