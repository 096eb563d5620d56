"""Runs that a page may have to show: busy, long, with hostile texts, not begun."""

from __future__ import annotations

import math

from fakes.page_world import World

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script></p>\u202eevil\u0000'


def busy_run(now: float) -> World:
    """Eleven versions: done, passed over, cancelled, running, waiting; one sync was discarded."""
    world = World(began=now - 118, num_expected=64)
    world.now = now
    at = world.began
    world.span("down", None, at, at + 14, detail="starting")
    learnt = {
        "rev": (0.0, 0.02, 0.16, 0.55, 0.75, 0.91, 0.95),
        "sort": (0.0, 0.14, 0.53, 0.7, 0.67, 0.89, 0.97),
    }
    evaluated = (1, 2, 3, 5, 6, 8, 9)
    for number in range(1, 12):
        begin = at + 6 + 10 * (number - 1)
        if number == 4:
            world.sync(4, begin, seconds=2.4, reason="publisher_deadline", detail="no free slot in 2.0 s")
            continue
        world.sync(number, begin)
        for dataset in world.datasets:
            world.job(f"v{number}", dataset, begin + 1.3, reason="first_push" if number == 1 else "every")
    free = at + 15.0
    for which, number in enumerate(evaluated):
        free = max(free, at + 7.6 + 10 * (number - 1))
        world.span("load", f"v{number}", free, free + 1.6, outcome="ok")
        free = evaluation(world, number, free + 1.6, {name: learnt[name][which] for name in world.datasets})
    for number in (7,):
        for dataset in world.datasets:
            world.end(
                f"v{number}/{dataset}",
                at + 6 + 10 * number + 1.4,
                status="superseded",
                reason="newer_version",
            )
    world.span("load", "v10", at + 98, at + 99.5, outcome="ok")
    world.span("eval", "v10", at + 99.5, None)
    world.start("v10/rev", at + 99.5)
    world.end("v10/rev", at + 106, score=0.984, num_scored=60)
    world.start("v10/sort", at + 106)
    world.progress("v10/sort", 41, 0.976)
    world.jobs["v10/sort"]["protected"] = True
    world.engines["eval-0"].update(state="pinned", target="v10", since=at + 99.5)
    checkpoint = world.job("c1", "rev", at + 60, reason="checkpoint", path="/ckpt/step_200")
    checkpoint["priority"] = 5
    return world


def evaluation(world: World, number: int, begin: float, scores: dict[str, float]) -> float:
    """Both datasets of one version, one after the other; version 6 is cancelled in the second."""
    at = begin
    for dataset, score in scores.items():
        job_id = f"v{number}/{dataset}"
        world.start(job_id, at)
        at += 3.1 if dataset == "rev" else 3.4
        add_samples(world, job_id, score)
        if number == 6 and dataset == "sort":
            world.progress(job_id, 29, score)
            world.end(job_id, at, status="cancelled", reason="newer_version", partial=score)
        else:
            world.end(job_id, at, score=round(score * 64) / 64)
    world.span("eval", f"v{number}", begin, at)
    return at + 0.2


def add_samples(world: World, job_id: str, score: float, *, num: int = 24) -> None:
    """Answers to the digits of the demo, `score` of them right."""
    task = job_id.split("/")[1]
    for row in range(num):
        digits = str(12345 + row * 7919)[-5:]
        label = digits[::-1] if task == "rev" else "".join(sorted(digits))
        right = (row * 37 % num) / num < score
        response = label if right else label[:2] + label[3:] + label[2]
        right = right or response == label
        world.sample(
            job_id, row, prompt=f"{task} {digits}=", label=label, response=response, reward=float(right)
        )


def long_run(now: float, *, num_versions: int = 3000) -> World:
    """Thousands of versions and jobs, two seconds apart."""
    world = World(began=now - 2.0 * num_versions, datasets=("rev", "sort"))
    world.now = now
    for number in range(1, num_versions + 1):
        at = world.began + 2.0 * number - 2
        world.sync(number, at, seconds=0.3)
        score = 0.9 * (1 - math.exp(-number / 600)) + 0.04 * math.sin(number)
        world.span("load", f"v{number}", at + 0.4, at + 0.6, outcome="ok")
        world.span("eval", f"v{number}", at + 0.6, at + 1.6)
        for turn, dataset in enumerate(world.datasets):
            job_id = world.job(f"v{number}", dataset, at + 0.3)["job_id"]
            if number % 7 == 3:
                world.end(job_id, at + 2, status="superseded", reason="newer_version")
                continue
            world.start(job_id, at + 0.6 + turn * 0.5)
            world.end(job_id, at + 1.1 + turn * 0.5, score=max(0.0, min(1.0, score - 0.1 * turn)))
    return world


def hostile_run(now: float) -> World:
    """Two versions whose answers, prompts, reasons and paths try to be markup."""
    world = World(began=now - 30, datasets=("rev",))
    world.now = now
    for number in (1, 2):
        world.sync(number, world.began + number)
        job_id = world.job(f"v{number}", "rev", world.began + number + 1)["job_id"]
        world.start(job_id, world.began + number + 2)
        for row in range(3):
            answer = f"{HOSTILE} {row} {'left' if number == 1 else 'right'}"
            world.sample(
                job_id, row, prompt=HOSTILE, label=HOSTILE, response=answer, reward=float(number == 2)
            )
        world.sample(job_id, 3, prompt="long", label="x", response="y" * 20_000, reward=None)
        world.end(job_id, world.began + number + 3, score=float(number - 1), detail=HOSTILE)
    world.sync(3, world.began + 5, reason=HOSTILE, detail=HOSTILE)
    world.job("c1", "rev", world.began + 6, path=f"/ckpt/{HOSTILE}")
    return world


def sampled_run(now: float) -> World:
    """One version, two samples of each of its rows."""
    world = World(began=now - 10, datasets=("rev",), num_expected=4, samples_a_row=2)
    world.now = now
    world.sync(1, world.began)
    job_id = world.job("v1", "rev", world.began + 1)["job_id"]
    world.start(job_id, world.began + 2)
    for row in range(2):
        for number in range(2):
            world.sample(job_id, row, number, prompt="rev 12=", label="21", response="21", reward=1.0)
    world.end(job_id, world.began + 3, score=1.0)
    return world


def checkpoint_run(now: float) -> World:
    """A service without a trainer: one checkpoint is scored, two run."""
    world = World(began=now - 10, datasets=("rev",))
    world.now = now
    for number in (1, 2, 3):
        path = f"/ckpt/step_{number}00"
        job_id = world.job(f"c{number}", "rev", world.began + 1, reason="checkpoint", path=path)["job_id"]
        world.start(job_id, world.began + 2)
    world.end("c1/rev", world.began + 3, score=0.5)
    world.progress("c2/rev", 10, 0.4)
    world.progress("c3/rev", 20, 0.7)
    return world


def empty_run(now: float) -> World:
    """A service whose engines are starting."""
    world = World(began=now - 3)
    world.now = now
    world.state = "starting"
    world.engines["eval-0"].update(state="starting")
    world.span("down", None, now - 3, None, detail="starting")
    world.roots = []
    return world
