"""What a soak's looks say: flat is flat, a leak is found and named; a run that was cut can be drawn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from benchmarks.soak.samples import Look, Looks, read
from benchmarks.soak.trends import MIB, OURS, figures, trends
from live_eval.rundir import RunDir

ROOT = Path(__file__).parents[2]
PARTS = (*OURS, "engine")
VERSION_BYTES = 8_000_000


def look(number: int, **changes: Any) -> Look:
    """Of a run in which nothing grows but what may."""
    values: dict[str, Any] = {
        "at_s": 60.0 * number,
        "memory": dict.fromkeys(PARTS, 100 * MIB),
        "files": dict.fromkeys(PARTS, 20),
        "threads": dict.fromkeys(PARTS, 8),
        "processes": dict.fromkeys(PARTS, 1),
        "cpu_s": dict.fromkeys(PARTS, 3.0 * number),
        "object_store": 8 * MIB,
        "store": 30 * MIB + (number % 3) * 2 * MIB,
        "ledger": 4096 * number,
        "rest": 2048 * number,
        "syncs": {"syncs": 12.0 * number, "sealed": 12.0 * number, "discarded": 0.0, "max_held_s": 0.01},
        "jobs": {"succeeded": 10 * number},
    }
    return Look(**(values | changes))


def verdicts(looks: list[Look]) -> dict[str, str]:
    return {trend.what: trend.verdict for trend in trends(looks, version_bytes=VERSION_BYTES)}


def test_a_steady_run_is_flat_and_its_figures_say_so() -> None:
    looks = [look(number) for number in range(61)]
    assert set(verdicts(looks).values()) == {"flat", ""}
    rows = list(figures(looks, trends(looks, version_bytes=VERSION_BYTES)))
    assert all(row.goal is None or row.value <= row.goal for row in rows)
    value = {row.figure.partition(": ")[2]: row.value for row in rows}
    assert value["syncs"] == 720
    assert value["ledger a finished eval"] == pytest.approx(409.6)
    assert value["share of a core, all parts"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("memory of the receiver", lambda n: {"memory": dict.fromkeys(PARTS, 1) | {"receiver": n * MIB}}),
        ("open files of the service", lambda n: {"files": dict.fromkeys(PARTS, 1) | {"service": n // 10}}),
        ("threads of the trainer", lambda n: {"threads": dict.fromkeys(PARTS, 1) | {"trainer": n // 5}}),
        ("version store", lambda n: {"store": n * MIB}),
    ],
)
def test_a_leak_is_found_and_named(what: str, changes: Any) -> None:
    found = verdicts([look(number, **changes(number)) for number in range(61)])
    assert [name for name, verdict in found.items() if verdict == "GROWS"] == [what]


def test_growth_in_the_warm_up_is_none() -> None:
    looks = [look(n, memory=dict.fromkeys(PARTS, min(n, 12) * 10 * MIB)) for n in range(61)]
    assert "GROWS" not in verdicts(looks).values()


LOOKED_AT = """
import sys, threading
for number in range(3):
    print(flush=True)
    sys.stdin.readline()
    if number == 0:
        files = [open(f"{sys.argv[1]}/{each}", "w") for each in range(5)]
        threads = [threading.Thread(target=threading.Event().wait, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
"""


def test_looks_at_a_process_see_its_files_and_threads(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    run_dir.make()
    # Not this process: what other tests have started in it comes and goes.
    command = [sys.executable, "-c", LOOKED_AT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        site: Any = SimpleNamespace(run_dir=run_dir, pids={"service": process.pid}, raylet=process.pid)
        looks = Looks(site, tmp_path / "looks.jsonl")
        before = looks.take()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        run_dir.results_jsonl.write_bytes(b"x" * 100_000)
        after = looks.take()
        process.kill()
    assert after.files["service"] - before.files["service"] == 5
    assert after.threads["service"] - before.threads["service"] == 3
    assert after.rest - before.rest >= 100_000
    assert read(tmp_path / "looks.jsonl") == [before, after]


def test_a_run_that_was_cut_is_judged_and_drawn_from_its_looks(tmp_path: Path) -> None:
    file, chart, out = (tmp_path / name for name in ("looks.jsonl", "soak.png", "out.json"))
    file.write_bytes(b"".join(msgspec.json.encode(look(number)) + b"\n" for number in range(20)))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.soak", "--redraw", str(file)),
            *("--chart", str(chart), "--out", str(out)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "memory of the receiver" in done.stdout
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert list(json.loads(out.read_text())[0]) == [
        "figure",
        "value",
        "goal",
        "peer",
        "unit",
    ]
