"""A sync is a whole model, or refused with the one reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.checkpoints import EMBED, HEAD, NORM, ODD, PLAIN, Model

from live_eval.errors import VersionRefused
from live_eval.reasons import DiscardReason
from live_eval.store import BaseCheckpoint, check_known, check_whole
from protocol.messages import TensorMeta

SCALE = "odd.e4m3_scale_inv"


def digests(base: BaseCheckpoint, **changes: str) -> dict[str, str]:
    """A digest for all that is expected, equal for the tied pair."""
    return {name: name for name in base.expected()} | changes


def refusal(base: BaseCheckpoint, sent: dict[str, str]) -> tuple[DiscardReason, str]:
    with pytest.raises(VersionRefused) as caught:
        check_whole(base, sent)
    return caught.value.reason, caught.value.detail


def test_all_that_is_expected_is_whole(tmp_path: Path) -> None:
    base = Model(metas=ODD).base(tmp_path / "base")
    check_known(base, ODD)
    check_whole(base, digests(base))


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (TensorMeta("model.other.weight", "bfloat16", (16, 8)), DiscardReason.UNKNOWN_TENSOR),
        (TensorMeta(EMBED.name, "float16", (16, 8)), DiscardReason.WRONG_DTYPE),
        (TensorMeta(EMBED.name, "bfloat16", (8, 16)), DiscardReason.WRONG_SHAPE),
        (TensorMeta(EMBED.name, "bfloat16", (-16, -8)), DiscardReason.WRONG_SHAPE),
    ],
)
def test_a_tensor_that_is_not_the_models_is_refused(
    tmp_path: Path, meta: TensorMeta, reason: DiscardReason
) -> None:
    base = Model().base(tmp_path / "base")
    with pytest.raises(VersionRefused) as caught:
        check_known(base, [NORM, meta])
    assert caught.value.reason is reason
    assert meta.name in caught.value.detail


def test_nothing_is_empty(tmp_path: Path) -> None:
    assert refusal(Model().base(tmp_path / "base"), {})[0] is DiscardReason.EMPTY


@pytest.mark.parametrize("meta", PLAIN)
def test_each_missing_tensor_is_incomplete_and_named(tmp_path: Path, meta: TensorMeta) -> None:
    base = Model().base(tmp_path / "base")
    sent = digests(base)
    del sent[meta.name]
    reason, detail = refusal(base, sent)
    assert reason is DiscardReason.INCOMPLETE
    assert meta.name in detail


def test_many_missing_tensors_are_counted(tmp_path: Path) -> None:
    base = Model(metas=ODD).base(tmp_path / "base")
    assert f"and {len(ODD) - 4} more" in refusal(base, {EMBED.name: ""})[1]


def test_a_quantized_weight_without_its_scale_is_incomplete(tmp_path: Path) -> None:
    base = Model(metas=ODD).base(tmp_path / "base")
    sent = digests(base)
    del sent[SCALE]
    assert refusal(base, sent)[0] is DiscardReason.INCOMPLETE


@pytest.mark.parametrize("lost", ["odd.e4m3", SCALE])
def test_weight_and_scale_come_together_even_where_both_may_be_absent(tmp_path: Path, lost: str) -> None:
    base = Model(metas=ODD).base(tmp_path / "base", allowed_absent=("odd.e4m3*",))
    check_whole(base, digests(base))
    both = {"odd.e4m3": "1", SCALE: "2"}
    check_whole(base, digests(base, **both))
    del both[lost]
    reason, detail = refusal(base, digests(base, **both))
    assert reason is DiscardReason.INCOMPLETE
    assert lost in detail


def test_tied_without_a_head_is_whole(tmp_path: Path) -> None:
    base = Model(metas=(EMBED, NORM), tied=True).base(tmp_path / "base")
    check_whole(base, digests(base))


def test_tied_with_an_equal_head_is_whole(tmp_path: Path) -> None:
    base = Model(metas=(EMBED, NORM), tied=True).base(tmp_path / "base")
    check_known(base, [HEAD])
    check_whole(base, digests(base) | {HEAD.name: EMBED.name})


def test_tied_with_another_head_is_a_mismatch(tmp_path: Path) -> None:
    base = Model(metas=(EMBED, NORM), tied=True).base(tmp_path / "base")
    assert refusal(base, digests(base) | {HEAD.name: "other"})[0] is DiscardReason.TIED_MISMATCH


def test_untied_without_a_head_is_incomplete(tmp_path: Path) -> None:
    base = Model(tied=False).base(tmp_path / "base")
    sent = digests(base)
    del sent[HEAD.name]
    assert refusal(base, sent) == (DiscardReason.INCOMPLETE, f"missing: {HEAD.name}")
