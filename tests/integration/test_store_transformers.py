"""A version directory is a checkpoint that transformers and safetensors load as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.checkpoints import bucket, sync_begin
from fakes.tiny_model import tiny_qwen2, write_tiny_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from live_eval.errors import VersionRefused
from live_eval.store import BaseCheckpoint, VersionStore, check_complete
from protocol.messages import TensorMeta

if TYPE_CHECKING:
    import torch

    from live_eval.store import Manifest

PROMPT = list(b"rev abc=")


def publish(
    store: VersionStore, version: int, tensors: dict[str, torch.Tensor], *, bucket_size: int = 4
) -> Manifest:
    """Play the publisher: the tensors' own bytes, in buckets."""
    import torch

    staged = store.begin(sync_begin(version))
    names = list(tensors)
    for index in range(0, len(names), bucket_size):
        part = {name: tensors[name] for name in names[index : index + bucket_size]}
        metas = [
            TensorMeta(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in part.items()
        ]
        header = bucket(index // bucket_size, metas)
        for view, tensor in zip(staged.allocate(header), part.values(), strict=True):
            view[:] = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        staged.filled(header)
    return staged.seal()


def weights(model: torch.nn.Module, *, head: bool) -> dict[str, torch.Tensor]:
    tensors = dict(model.state_dict())
    if not head:
        del tensors["lm_head.weight"]
    return tensors


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("tied", "head"), [(False, True), (True, False), (True, True)])
def test_transformers_gets_the_trained_model_back(tmp_path: Path, dtype: str, tied: bool, head: bool) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = BaseCheckpoint.read(write_tiny_model(tmp_path / "base", dtype=dtype, tied=tied))
    trained = tiny_qwen2(seed=1, dtype=dtype, tied=tied)
    with VersionStore.open(
        tmp_path / "store", base=base, max_bytes=1 << 30, keep_newest=2, writer=True
    ) as store:
        publish(store, 1, weights(trained, head=head))
        store.verify(1)
        path = store.path(1)
        check_complete(path, check_finite=True)

        loaded, info = AutoModelForCausalLM.from_pretrained(path, dtype="auto", output_loading_info=True)
        assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        assert loaded.dtype is getattr(torch, dtype)
        for name, tensor in trained.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], tensor), name
        # Not the model in memory: a cast to half precision takes the rotary buffers along, a load does not.
        trained.save_pretrained(tmp_path / "saved")
        saved = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype="auto")
        ids = torch.tensor([PROMPT])
        with torch.no_grad():
            assert torch.equal(loaded(ids).logits, saved(ids).logits)
        assert AutoTokenizer.from_pretrained(path).encode("rev") == AutoTokenizer.from_pretrained(
            base.path
        ).encode("rev")


def test_a_tied_version_gives_the_same_logits_with_and_without_a_head(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    base = BaseCheckpoint.read(write_tiny_model(tmp_path / "base", tied=True))
    trained = tiny_qwen2(seed=1, tied=True)
    ids = torch.tensor([PROMPT])
    with VersionStore.open(
        tmp_path / "store", base=base, max_bytes=1 << 30, keep_newest=5, writer=True
    ) as store:
        logits = []
        for version, head in ((1, False), (2, True)):
            publish(store, version, weights(trained, head=head))
            with torch.no_grad():
                logits.append(AutoModelForCausalLM.from_pretrained(store.path(version))(ids).logits)
        assert torch.equal(*logits)

        different = weights(trained, head=True)
        different["lm_head.weight"] = different["lm_head.weight"] + 1
        with pytest.raises(VersionRefused, match="ties"):
            publish(store, 3, different)


def test_torch_gets_every_dtype_back_bit_for_bit(tmp_path: Path) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(300, generator=generator)
    shared = torch.arange(12.0)
    tensors = {
        "x.bf16": flat[:96].to(torch.bfloat16).reshape(8, 12),
        "x.fp16": flat[:15].to(torch.float16),
        "x.fp32": flat,
        "x.view_of_a_bucket": flat[100:200].reshape(10, 10),
        "x.e4m3": flat.to(torch.float8_e4m3fn),
        "x.e4m3_scale_inv": torch.tensor([[0.5]]),
        "x.e5m2": flat.to(torch.float8_e5m2),
        "x.int64": torch.tensor([-(2**62), 3]),
        "x.int8": torch.tensor([-128, 127, 5], dtype=torch.int8),
        "x.uint8": torch.tensor([0, 255, 5], dtype=torch.uint8),
        "x.bool": torch.tensor([True, False, True]),
        "x.scalar": torch.tensor(1.5),
        "x.empty": torch.empty(0),
        "x.empty_matrix": torch.empty((0, 4), dtype=torch.bfloat16),
        "x.transposed": shared.reshape(3, 4).t(),
        "x.alias": shared,
        "x.same_alias": shared,
    }
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    zeros = {name: torch.zeros_like(t, memory_format=torch.contiguous_format) for name, t in tensors.items()}
    save_file(zeros, tmp_path / "base" / "model.safetensors", {"format": "pt"})
    base = BaseCheckpoint.read(tmp_path / "base")
    with VersionStore.open(
        tmp_path / "store", base=base, max_bytes=1 << 30, keep_newest=1, writer=True
    ) as store:
        publish(store, 1, tensors, bucket_size=5)
        store.verify(1)
        found: dict[str, torch.Tensor] = {}
        for file in store.path(1).glob("*.safetensors"):
            found |= load_file(file)
            with safe_open(file, framework="pt") as opened:
                assert opened.metadata() == {"format": "pt"}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(
            found[name].reshape(-1).view(torch.uint8), tensor.contiguous().reshape(-1).view(torch.uint8)
        ), name


def test_tensors_that_no_sync_carries_are_loaded_from_the_version(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    frozen = ("model.layers.1.*",)
    base = BaseCheckpoint.read(write_tiny_model(tmp_path / "base"), allowed_absent=frozen)
    untrained, trained = tiny_qwen2(), tiny_qwen2(seed=1)
    sent = {name: t for name, t in weights(trained, head=True).items() if name in base.expected()}
    assert len(sent) < len(base.tensors)
    with VersionStore.open(
        tmp_path / "store", base=base, max_bytes=1 << 30, keep_newest=2, writer=True
    ) as store:
        for version in (1, 2):
            manifest = publish(store, version, sent)
            loaded = AutoModelForCausalLM.from_pretrained(store.path(version)).state_dict()
            for name in base.tensors:
                source = trained if name in sent else untrained
                assert torch.equal(loaded[name], source.state_dict()[name]), name
            assert set(manifest.absent) == base.tensors.keys() - sent.keys()
