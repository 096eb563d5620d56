"""The pin: the order of its steps, and each way in which an engine can hold something else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.engine import FakeEngine
from fakes.engine_checkpoint import SHAPES, write_checkpoint

from live_eval.engines.blank import write_blank_weights
from live_eval.engines.client import SGLangClient
from live_eval.engines.fingerprint import FingerprintBook, token_ids
from live_eval.engines.pin import BLANK_LABEL, Held, PinLimits, Pinner, PinTarget
from live_eval.errors import ConfigError, CorruptVersion, EngineTimeout, LoadFailed, PinMismatch
from live_eval.store.base import BaseCheckpoint
from live_eval.store.checkpoint import check_complete

FLAVOUR = "sglang-0.5.15.post1/float32/cpu/tp1"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "base", seed=0)


@pytest.fixture
async def server(base: Path) -> AsyncIterator[FakeEngine]:
    async with FakeEngine(model=base) as fake:
        yield fake


@pytest.fixture
async def client(server: FakeEngine) -> AsyncIterator[SGLangClient]:
    async with SGLangClient(server.url, name="e0") as found:
        yield found


@pytest.fixture
def pinner(base: Path, tmp_path: Path) -> Pinner:
    model = BaseCheckpoint.read(base)
    return Pinner(
        model=model,
        blank=write_blank_weights(tmp_path / "blank", model.expected().values()),
        ids=token_ids(64),
        book=FingerprintBook(),
        limits=PinLimits(flush_s=1, load_s=5, fingerprint_s=5),
    )


def target(path: Path, number: int) -> PinTarget:
    return PinTarget(label=str(number), path=path, digest=f"digest-{number}")


@pytest.fixture
def v1(tmp_path: Path) -> PinTarget:
    return target(write_checkpoint(tmp_path / "v1", seed=1), 1)


@pytest.fixture
def v2(tmp_path: Path) -> PinTarget:
    return target(write_checkpoint(tmp_path / "v2", seed=2), 2)


async def start(pinner: Pinner, client: SGLangClient) -> Held:
    return Held(vector=await pinner.fingerprint(client))


async def test_steps_are_abort_flush_blank_load_label_fingerprint(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget
) -> None:
    before = await start(pinner, client)
    server.calls.clear()
    pin = await pinner.pin(client, v1, before=before, flavour=FLAVOUR)
    assert server.calls == [
        "/abort_request",
        "/flush_cache",
        f"/update_weights_from_disk {BLANK_LABEL}",
        "/update_weights_from_disk 1",
        "/model_info",
        "/generate",
    ]
    assert pin.label == "1"
    assert pin.moved > 0
    assert not pin.known
    await pinner.check(client, v1, held=pin.held, flavour=FLAVOUR)


async def test_one_two_one_gives_one_fingerprint_for_one(
    pinner: Pinner, client: SGLangClient, v1: PinTarget, v2: PinTarget
) -> None:
    first = await pinner.pin(client, v1, before=await start(pinner, client), flavour=FLAVOUR)
    pinner.book.add(v1.digest, FLAVOUR, first.held.vector)
    second = await pinner.pin(client, v2, before=first.held, flavour=FLAVOUR)
    again = await pinner.pin(client, v1, before=second.held, flavour=FLAVOUR)
    assert again.known
    assert again.held.vector == first.held.vector != second.held.vector


@pytest.mark.parametrize("lost", sorted(SHAPES))
async def test_a_tensor_that_a_load_leaves_out_is_caught_at_the_first_load(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget, lost: str
) -> None:
    before = await start(pinner, client)
    write_file_without(v1.path, lost)
    with pytest.raises(PinMismatch, match="computes NaN after loading '1'"):
        await pinner.pin(client, v1, before=before, flavour=FLAVOUR)


def write_file_without(path: Path, lost: str) -> None:
    write_checkpoint(path, seed=1, shapes={n: s for n, s in SHAPES.items() if n != lost})


async def test_an_engine_that_keeps_its_old_weights_is_caught(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget, v2: PinTarget
) -> None:
    pin = await pinner.pin(client, v1, before=await start(pinner, client), flavour=FLAVOUR)
    server.keeps_old_weights = True
    with pytest.raises(PinMismatch, match="keeps its weights"):
        await pinner.pin(client, v2, before=pin.held, flavour=FLAVOUR)


async def test_an_engine_that_ignores_loads_from_the_start_is_caught(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget
) -> None:
    server.keeps_old_weights = True
    with pytest.raises(PinMismatch, match="keeps its weights"):
        await pinner.pin(client, v1, before=await start(pinner, client), flavour=FLAVOUR)


async def test_two_versions_that_compute_the_same_are_told_from_an_engine_that_ignores_loads(
    pinner: Pinner, client: SGLangClient, base: Path
) -> None:
    """The first push of a training carries the weights that the engine was launched with."""
    pin = await pinner.pin(client, target(base, 1), before=await start(pinner, client), flavour=FLAVOUR)
    assert pin.moved == 0
    twin = await pinner.pin(client, target(base, 2), before=pin.held, flavour=FLAVOUR)
    assert twin.held.vector == pin.held.vector


async def test_no_load_follows_a_request_without_a_flush_between_them(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, base: Path
) -> None:
    """A server that has answered a fingerprint may still be busy with it, and dies of a load then."""
    before = await start(pinner, client)
    server.calls.clear()
    await pinner.pin(client, target(base, 1), before=before, flavour=FLAVOUR)
    loads = [number for number, call in enumerate(server.calls) if call.startswith("/update_weights")]
    assert len(loads) == 5
    for number in loads:
        assert server.calls[number - 1].startswith(("/flush_cache", "/update_weights"))


async def test_another_content_than_at_an_earlier_load_is_caught(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget, v2: PinTarget
) -> None:
    pin = await pinner.pin(client, v1, before=await start(pinner, client), flavour=FLAVOUR)
    pinner.book.add(v1.digest, FLAVOUR, pin.held.vector)
    other = replace(v2, label="1", digest=v1.digest)
    with pytest.raises(PinMismatch, match="from those of an earlier load"):
        await pinner.pin(client, other, before=pin.held, flavour=FLAVOUR)
    server.noise = 5e-5
    await pinner.pin(client, v1, before=pin.held, flavour=FLAVOUR)
    server.noise = 2e-4
    with pytest.raises(PinMismatch, match=r"allowed 0\.0001"):
        await pinner.pin(client, v1, before=pin.held, flavour=FLAVOUR)
    await pinner.pin(client, v1, before=pin.held, flavour=FLAVOUR.replace("float32", "bfloat16"))


async def test_another_label_than_the_targets_is_caught(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget
) -> None:
    pin = await pinner.pin(client, v1, before=await start(pinner, client), flavour=FLAVOUR)
    for label in ("2", "default"):
        server.label = label
        with pytest.raises(PinMismatch, match=f"serves '{label}', not '1'"):
            await pinner.check(client, v1, held=pin.held, flavour=FLAVOUR)


async def test_weights_that_changed_under_the_label_are_caught(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget, v2: PinTarget
) -> None:
    pin = await pinner.pin(client, v1, before=await start(pinner, client), flavour=FLAVOUR)
    await client.load_from_disk(v2.path, "1", timeout_s=5)
    with pytest.raises(PinMismatch, match="no longer computes '1'"):
        await pinner.check(client, v1, held=pin.held, flavour=FLAVOUR)


async def test_an_engine_that_does_not_become_idle_is_never_loaded(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget
) -> None:
    before = await start(pinner, client)
    server.flush_refusals = float("inf")
    with pytest.raises(EngineTimeout, match="pending requests"):
        await pinner.pin(client, v1, before=before, flavour=FLAVOUR)
    assert not any(call.startswith("/update") for call in server.calls)


async def test_a_load_that_hangs_or_fails_is_a_failed_load(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget
) -> None:
    before = await start(pinner, client)
    server.load_status = 400
    with pytest.raises(LoadFailed, match="400"):
        await pinner.pin(client, v1, before=before, flavour=FLAVOUR)
    server.load_status, server.load_s = 200, 60
    hasty = replace(pinner, limits=PinLimits(load_s=0.3))
    with pytest.raises(LoadFailed, match="did not answer"):
        await hasty.pin(client, v1, before=before, flavour=FLAVOUR)


@pytest.mark.parametrize("label", ["", "default", BLANK_LABEL])
def test_a_label_that_an_engine_without_a_version_has_is_refused(label: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the label"):
        PinTarget(label=label, path=Path("x"))


async def test_bad_files_are_refused_before_any_engine_sees_them(pinner: Pinner, tmp_path: Path) -> None:
    def checked(path: Path) -> PinTarget:
        return PinTarget(label="1", path=path, verify=lambda: void(check_complete(path, check_finite=True)))

    good = write_checkpoint(tmp_path / "good", seed=5)
    assert await check_files(pinner, checked(good)) >= 0

    nan = write_checkpoint(tmp_path / "nan", seed=5)
    data = bytearray((nan / "model.safetensors").read_bytes())
    data[-4:] = b"\x00\x00\xc0\x7f"
    (nan / "model.safetensors").write_bytes(data)
    with pytest.raises(CorruptVersion, match="NaN"):
        await check_files(pinner, checked(nan))

    short = write_checkpoint(tmp_path / "short", seed=5)
    for size in (0, 4, 40, 300, len(data) - 1):
        (short / "model.safetensors").write_bytes(data[:size])
        with pytest.raises(CorruptVersion):
            await check_files(pinner, checked(short))

    shapes = {**SHAPES, "model.norm.weight": (5,)}
    with pytest.raises(CorruptVersion, match=r"model.norm.weight.*\[5\].*\[4\]"):
        await check_files(pinner, checked(write_checkpoint(tmp_path / "shape", seed=5, shapes=shapes)))
    shapes = {n: s for n, s in SHAPES.items() if n != "lm_head.weight"}
    with pytest.raises(CorruptVersion, match=r"1 tensors are missing, the first is 'lm_head\.weight'"):
        await check_files(pinner, checked(write_checkpoint(tmp_path / "less", seed=5, shapes=shapes)))
    with pytest.raises(CorruptVersion, match=r"'experts\.0\.up' is no tensor of the engines' model"):
        shapes = {**SHAPES, "experts.0.up": (4,)}
        await check_files(pinner, checked(write_checkpoint(tmp_path / "more", seed=5, shapes=shapes)))
    with pytest.raises(CorruptVersion):
        await check_files(pinner, checked(tmp_path / "nowhere"))


async def check_files(pinner: Pinner, target: PinTarget) -> float:
    """All that is checked before a load."""
    return await pinner.check_headers(target) + await pinner.check_content(target)


def void(_: object) -> None:
    """For a check whose report is of no use."""


# --- servers that have checksums of their own ---------------------------------------------


async def start_checked(pinner: Pinner, client: SGLangClient, server: FakeEngine) -> Held:
    """The engine at its start, as one that has checksums."""
    server.checksum = "content"
    return Held(vector=await pinner.fingerprint(client), checksum=await client.checksum())


async def test_a_load_is_compared_with_the_checksum_of_the_first_one(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget, v2: PinTarget
) -> None:
    before = await start_checked(pinner, client, server)
    first = await pinner.pin(client, v1, before=before, flavour=FLAVOUR)
    assert first.held.checksum not in ("", before.checksum)
    pinner.book.add_checksum(v1.digest, FLAVOUR, first.held.checksum)
    second = await pinner.pin(client, v2, before=first.held, flavour=FLAVOUR)
    again = await pinner.pin(client, v1, before=second.held, flavour=FLAVOUR)
    assert again.held.checksum == first.held.checksum != second.held.checksum
    server.checksum = "something else"
    with pytest.raises(PinMismatch, match="checksum is something else, of an earlier load"):
        await pinner.pin(client, v1, before=again.held, flavour=FLAVOUR)


async def test_a_checksum_that_is_not_given_any_more_is_no_proof(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget
) -> None:
    before = await start_checked(pinner, client, server)
    pin = await pinner.pin(client, v1, before=before, flavour=FLAVOUR)
    server.checksum = None
    with pytest.raises(PinMismatch, match="no longer holds '1': its checksum is none"):
        await pinner.check(client, v1, held=pin.held, flavour=FLAVOUR)
    with pytest.raises(PinMismatch, match="its checksum is none"):
        await pinner.pin(client, v1, before=pin.held, flavour=FLAVOUR)


async def test_weights_that_change_under_a_job_are_found_by_their_checksum(
    pinner: Pinner, client: SGLangClient, server: FakeEngine, v1: PinTarget
) -> None:
    before = await start_checked(pinner, client, server)
    pin = await pinner.pin(client, v1, before=before, flavour=FLAVOUR)
    await pinner.check(client, v1, held=pin.held, flavour=FLAVOUR)
    server.checksum = "changed"
    with pytest.raises(PinMismatch, match="its checksum is changed, after the load it was"):
        await pinner.check(client, v1, held=pin.held, flavour=FLAVOUR)
