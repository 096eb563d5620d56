"""Nothing that comes from another process or from a checkpoint is unpickled."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = frozenset({"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"})
CALLS = frozenset(
    {
        "all_gather_object",
        "gather_object",
        "broadcast_object_list",
        "scatter_object_list",
        "send_object_list",
        "recv_object_list",
        "load_pickle",
    }
)
"""torch.distributed's calls that unpickle what the peer sent."""
LOADERS = frozenset({("torch", "load"), ("np", "load"), ("numpy", "load"), ("pd", "read_pickle")})


def product_files() -> list[Path]:
    return [path for name in ("protocol", "live_eval", "slime_patch") for path in (ROOT / name).rglob("*.py")]


def unpickling(source: str) -> Iterator[str]:
    """What in a module opens pickles."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found = {alias.name.split(".")[0] for alias in names} & MODULES
            case ast.ImportFrom(module=module, names=names):
                parts = {(module or "").split(".")[0], *(alias.name for alias in names)}
                found = parts & (MODULES | CALLS)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in LOADERS:
                found = {f"{owner}.{name}"}
            case ast.Attribute(attr=name):
                found = {name} & (CALLS | MODULES)
            case _:
                continue
        yield from sorted(found)


def test_no_module_of_the_product_opens_pickles() -> None:
    found = {
        str(path.relative_to(ROOT)): list(unpickling(path.read_text("utf-8"))) for path in product_files()
    }
    assert {path: names for path, names in found.items() if names} == {}
    assert len(found) > 100


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from cloudpickle import loads",
        "from ray import cloudpickle",
        "import ray\nray.cloudpickle.loads(b'')",
        "import torch\ntorch.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import torch.distributed as dist\ndist.broadcast_object_list([None])",
    ],
)
def test_each_way_to_open_a_pickle_would_be_seen(source: str) -> None:
    assert list(unpickling(source))
