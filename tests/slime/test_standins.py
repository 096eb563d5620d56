"""The stand-ins of slime that unit tests use are like the checkout, and what the hooks lean on is there.

Read from the sources, so that neither Megatron nor a GPU is needed.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from fakes import slime_standins as standins
from fakes.link import FakeLink
from fakes.slime_broadcast import BroadcastingUpdater
from fakes.slime_delta import checksum, overwrite_encode

from live_eval.subscriber.delta import checksum_of, decoded
from slime_patch.member import ReceiverEngine

UPDATER = "slime/backends/megatron_utils/update_weight/update_weight_from_distributed.py"
UPDATERS = "slime/backends/megatron_utils/update_weight/update_weight_from_"
MEGATRONS_OWN = {"save", "pipeline_model_parallel_size", "hf_checkpoint"}
"""Arguments that Megatron registers, or slime beside its argument groups."""


class Source:
    """One module of the checkout."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    def definition(self, dotted: str) -> ast.AST:
        node: ast.AST = self.tree
        for name in dotted.split("."):
            found = [
                child
                for child in ast.walk(node)
                if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and child.name == name
            ]
            assert found, f"there is no {dotted}"
            node = found[0]
        return node

    def parameters(self, function: str) -> list[str]:
        node = self.definition(function)
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        return [argument.arg for argument in arguments]

    def called(self, function: str) -> list[str]:
        """Names of methods called in a function, in order."""
        calls = [node for node in ast.walk(self.definition(function)) if isinstance(node, ast.Call)]
        ordered = sorted(calls, key=lambda node: (node.lineno, node.col_offset))
        return [node.func.attr for node in ordered if isinstance(node.func, ast.Attribute)]


@pytest.fixture
def source(slime_dir: Path):
    return lambda path: Source(slime_dir / path)


def parameters_of(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "name", "standin"),
    [
        (
            UPDATER,
            "UpdateWeightFromDistributed.update_weights",
            standins.UpdateWeightFromDistributed.update_weights,
        ),
        (
            UPDATER,
            "UpdateWeightFromDistributed._send_weights",
            standins.UpdateWeightFromDistributed._send_weights,
        ),
        (UPDATER, "UpdateWeightFromDistributed._on_chunk", standins.UpdateWeightFromDistributed._on_chunk),
        (
            UPDATERS + "tensor.py",
            "UpdateWeightFromTensor._send_hf_params",
            standins.UpdateWeightFromTensor._send_hf_params,
        ),
        (
            UPDATERS + "tensor.py",
            "UpdateWeightFromTensor._update_expert_weights",
            standins.UpdateWeightFromTensor._update_expert_weights,
        ),
        (
            UPDATERS + "distributed.py",
            "UpdateWeightFromDistributed.connect_rollout_engines",
            BroadcastingUpdater.connect_rollout_engines,
        ),
        ("slime/ray/actor_group.py", "RayTrainGroup.async_train", standins.RayTrainGroup.async_train),
        ("slime/ray/actor_group.py", "RayTrainGroup.update_weights", standins.RayTrainGroup.update_weights),
        ("slime/utils/data.py", "Dataset.__init__", standins.Dataset.__init__),
    ],
)
def test_methods_take_the_same_arguments(source, path: str, name: str, standin: object) -> None:
    assert source(path).parameters(name) == parameters_of(standin)


def test_a_chunk_is_shown_before_it_is_sent_and_cleared(source) -> None:
    updater = source(UPDATER)
    calls = updater.called("UpdateWeightFromDistributed._send_weights")
    assert calls.index("_on_chunk") < calls.index("_update_bucket_weights_from_distributed")
    assert "clear" in updater.called("UpdateWeightFromDistributed._update_bucket_weights_from_distributed")


def test_the_version_counts_up_first_and_by_one(source) -> None:
    body = source(UPDATER).definition("UpdateWeightFromDistributed.update_weights").body
    first = next(node for node in body if not isinstance(node, ast.Expr))
    assert ast.unparse(first) == "self.weight_version += 1"


def test_the_colocated_updater_shows_every_chunk(source) -> None:
    updater = source(UPDATERS + "tensor.py")
    update = updater.called("UpdateWeightFromTensor.update_weights")
    assert update.index("_send_hf_params") < update.index("_update_expert_weights")
    assert "_send_hf_params" in updater.called("UpdateWeightFromTensor._update_expert_weights")
    for name in ("self.rank", "self._expert_transfer_plan", "self._ipc_gather_group"):
        assert f"{name} = " in updater.text
    first = updater.definition("UpdateWeightFromTensor.update_weights").body[1]
    assert ast.unparse(first) == "self.weight_version += 1"


ENGINE_CALLS = {
    "pause_generation": set(),
    "flush_cache": set(),
    "continue_generation": set(),
    "post_process_weights": {"restore_weights_before_load", "post_process_quantization"},
    "init_weights_update_group": {
        "master_address", "master_port", "rank_offset", "world_size", "group_name", "backend",
    },
    "destroy_weights_update_group": set(),
    "update_weights_from_distributed": {
        "names", "dtypes", "shapes", "group_name", "weight_version", "load_format",
    },
}  # fmt: skip


def test_the_distributed_updater_asks_engines_for_nothing_else(source) -> None:
    found: dict[str, set[str]] = {}
    for node in ast.walk(source(UPDATERS + "distributed.py").tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("engine."):
            _, method, remote = ast.unparse(node.func).split(".")
            assert remote == "remote"
            found.setdefault(method, set()).update(str(keyword.arg) for keyword in node.keywords)
    assert found == ENGINE_CALLS
    link = FakeLink(None)  # type: ignore[arg-type]
    engine = ReceiverEngine(link, lambda *_, **__: None, ready=lambda: None)
    assert all(hasattr(getattr(engine, name), "remote") for name in ENGINE_CALLS)


@pytest.mark.parametrize(
    ("name", "class_name"), [("disk", "UpdateWeightFromDisk"), ("disk_delta", "UpdateWeightFromDiskDelta")]
)
def test_disk_updaters_run_the_post_write_hook_between_barriers(source, name: str, class_name: str) -> None:
    updater = source(UPDATERS + name + ".py")
    method = "update_weights" if name == "disk" else "_reload_engines"
    calls = updater.called(f"{class_name}.{method}")
    assert "barrier" in calls[calls.index("_post_write_hook") :]
    assert "self._post_write_hook: Callable | None = None" in updater.text
    assert "weight_v{self.weight_version:06d}" in updater.text


def test_the_first_delta_update_takes_stock_and_counts_nothing(source) -> None:
    body = source(UPDATERS + "disk_delta.py").definition("UpdateWeightFromDiskDelta.update_weights").body
    assert "_capture_baseline" in ast.unparse(body[0])
    assert isinstance(body[0], ast.If) and isinstance(body[0].body[-1], ast.Return)
    assert ast.unparse(body[1]) == "self.weight_version += 1"
    for key in ("base_version", "delta_encoding", "compression_format", "checksum_format", "weight_map"):
        assert f'"{key}"' in source(UPDATERS + "disk_delta.py").text


@pytest.mark.parametrize("algorithm", ["xxh3-128", "adler32"])
def test_differences_are_encoded_as_slime_does(slime_dir: Path, algorithm: str) -> None:
    spec = importlib.util.spec_from_file_location("disk_delta", slime_dir / "slime/utils/disk_delta.py")
    assert spec is not None and spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    old, new = (np.random.default_rng(seed).integers(0, 3, 1000, dtype=np.uint8) for seed in (1, 2))
    encoded = theirs.overwrite_encode(new, new != old)
    assert (encoded == overwrite_encode(new, new != old)).all()
    assert (decoded(encoded, old, encoding="overwrite") == new).all()
    assert theirs.checksum(algorithm, new) == checksum(algorithm, new) == checksum_of(algorithm, new)


def test_eval_datasets_have_the_fields(source) -> None:
    node = source("slime/utils/eval_config.py").definition("EvalDatasetConfig")
    theirs = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
    assert {each.name for each in fields(standins.EvalDatasetConfig)} <= theirs


def test_arguments_that_are_read_exist(source) -> None:
    text = source("slime/utils/arguments.py").text
    missing = [
        name
        for name in standins.SLIME_DEFAULTS
        if name not in MEGATRONS_OWN and name not in text and name.replace("_", "-") not in text
    ]
    assert missing == []


def test_samples_have_what_rewards_need(source) -> None:
    node = source("slime/utils/types.py").definition("Sample")
    theirs = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
    assert {"index", "prompt", "response", "response_length", "label", "metadata", "custom_rm_path"} <= theirs


@pytest.mark.parametrize(
    ("path", "function", "first"),
    [
        ("slime/utils/arguments.py", "parse_args", ["add_custom_arguments"]),
        ("slime/ray/placement_group.py", "create_placement_groups", ["args"]),
        ("slime/ray/placement_group.py", "create_rollout_manager", ["args", "pg"]),
        (
            "slime/ray/placement_group.py",
            "create_training_models",
            ["args", "pgs", "rollout_manager", "actor_cls"],
        ),
        ("slime/backends/megatron_utils/actor.py", "MegatronTrainRayActor.init", ["self", "args", "role"]),
        ("slime/rollout/rm_hub/__init__.py", "async_rm", ["args", "sample"]),
        ("slime/utils/processing_utils.py", "load_tokenizer", ["name_or_path"]),
        ("slime/utils/misc.py", "load_function", ["path"]),
        ("slime/utils/http_utils.py", "init_http_client", ["args"]),
        ("slime/utils/http_utils.py", "get_rollout_num_engines", ["args"]),
        ("slime/rollout/base_types.py", "call_rollout_fn", ["fn"]),
        (
            "slime/rollout/sglang_rollout.py",
            "generate_rollout",
            ["args", "rollout_id", "data_source", "evaluation"],
        ),
        ("slime/observability/logging_utils.py", "log", ["args", "metrics", "step_key"]),
        ("slime/observability/logging_utils.py", "finish_tracking", ["args"]),
        (
            "slime/observability/rollout_metrics.py",
            "log_eval_rollout_data",
            ["rollout_id", "args", "data", "extra_metrics"],
        ),
    ],
)
def test_functions_that_are_wrapped_or_called(source, path: str, function: str, first: list[str]) -> None:
    assert source(path).parameters(function)[: len(first)] == first


@pytest.mark.parametrize("script", ["train.py", "train_async.py"])
def test_scripts_end_their_logging_last(source, script: str) -> None:
    body = source(script).definition("train").body
    assert ast.unparse(body[-1]) == "finish_tracking(args)"


@pytest.mark.parametrize("script", ["train.py", "train_async.py"])
def test_scripts_look_their_functions_up_when_they_run(source, script: str) -> None:
    imports = {
        (node.module, alias.name)
        for node in source(script).tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    placement = "slime.ray.placement_group"
    names = ("create_placement_groups", "create_rollout_manager", "create_training_models")
    assert {("slime.utils.arguments", "parse_args"), *((placement, name) for name in names)} <= imports


def test_slimes_eval_function_asks_the_router_of_its_arguments(source) -> None:
    module = source("slime/rollout/sglang_rollout.py")
    asked = ast.unparse(module.definition("generate"))
    assert "f'http://{args.sglang_router_ip}:{args.sglang_router_port}/generate'" in asked
    state = ast.unparse(module.definition("GenerateState.__init__"))
    assert "args.sglang_server_concurrency * get_rollout_num_engines(args)" in state
    numbers = ast.unparse(source("slime/utils/http_utils.py").definition("get_rollout_num_engines"))
    assert "'rollout_num_engines'" in numbers


def test_samples_keep_the_labels_of_their_answers(source) -> None:
    assert 'self.weight_versions.append(meta_info["weight_version"])' in source("slime/utils/types.py").text


def test_eval_steps_are_slimes(source) -> None:
    step = ast.unparse(source("slime/observability/metric_utils.py").definition("compute_rollout_step"))
    assert (
        "rollout_id * args.rollout_batch_size * args.n_samples_per_prompt // args.global_batch_size" in step
    )


def test_fully_async_rollouts_refuse_to_evaluate(source) -> None:
    function = source("slime/rollout/fully_async_rollout.py").definition("generate_rollout_fully_async")
    assert "doesn't support evaluation mode" in ast.unparse(function)


def test_handles_are_where_the_driver_looks_for_them(source) -> None:
    assert "self._actor_handlers" in source("slime/ray/actor_group.py").text
    assert "self._is_pp_src_rank" in source(UPDATER).text
