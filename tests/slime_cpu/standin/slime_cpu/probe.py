"""Observation only: one JSON line per call of interest into $SLIME_CPU_LOG/calls.jsonl."""

import functools
import json
import os
import time

DT = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


def emit(**kw):
    d = os.environ.get("SLIME_CPU_LOG")
    if not d:
        return
    kw = {"t": round(time.time(), 3), "pid": os.getpid(), **kw}
    with open(os.path.join(d, "calls.jsonl"), "a") as f:
        f.write(json.dumps(kw, default=str) + "\n")


def _nbytes(shapes, dtypes):
    n = 0
    for s, d in zip(shapes, dtypes, strict=True):
        k = 1
        for x in s:
            k *= int(x)
        n += k * DT.get(str(d).replace("torch.", ""), 0)
    return n


ENGINE_METHODS = [
    "init",
    "pause_generation",
    "flush_cache",
    "init_weights_update_group",
    "destroy_weights_update_group",
    "update_weights_from_distributed",
    "update_weights_from_disk",
    "update_weights_from_tensor",
    "continue_generation",
    "post_process_weights",
    "get_weight_version",
    "check_weights",
    "pull_weights",
    "release_memory_occupation",
    "resume_memory_occupation",
    "health_generate",
    "shutdown",
]


def _log_call(who, fn):
    @functools.wraps(fn)
    def wrapper(self, *a, **kw):
        info = {"who": f"{who}[{getattr(self, 'rank', '?')}]", "method": fn.__name__}
        for k in (
            "group_name",
            "weight_version",
            "rank_offset",
            "world_size",
            "backend",
            "flush_cache",
            "load_format",
            "model_path",
            "router_port",
            "port",
            "rollout_id",
        ):
            if k in kw:
                info[k] = kw[k]
        if fn.__name__ in ("generate", "eval", "save", "load") and a:
            info["rollout_id"] = a[0]
        if "names" in kw:
            info.update(num_tensors=len(kw["names"]), bytes=_nbytes(kw["shapes"], kw["dtypes"]))
        t = time.time()
        try:
            r = fn(self, *a, **kw)
            if isinstance(r, dict) and "success" in r:
                info["reply"] = r
            if fn.__name__ == "get_updatable_engines_and_lock":
                info["num_engines"], info["num_new"] = len(r[0]), r[2]
            return r
        except BaseException as e:
            info["error"] = repr(e)[:200]
            raise
        finally:
            emit(**info, dur=round(time.time() - t, 3))

    return wrapper


def wrap_engine(mod):
    from slime_cpu.pull import pull_weights

    mod.SGLangEngine.pull_weights = pull_weights
    for m in ENGINE_METHODS:
        if hasattr(mod.SGLangEngine, m):
            setattr(mod.SGLangEngine, m, _log_call("engine", getattr(mod.SGLangEngine, m)))


def _wrap_actor_class(actor_cls, who, methods):
    cls = actor_cls.__ray_metadata__.modified_class
    for m in methods:
        if m in vars(cls) or hasattr(cls, m):
            setattr(cls, m, _log_call(who, getattr(cls, m)))


def wrap_rollout(mod):
    _wrap_actor_class(
        mod.RolloutManager,
        "rollout_manager",
        [
            "generate",
            "eval",
            "save",
            "load",
            "get_updatable_engines_and_lock",
            "clear_updatable_num_new_engines",
            "set_train_parallel_config",
            "recover_updatable_engines",
            "dispose",
        ],
    )


def wrap_lock(mod):
    _wrap_actor_class(mod.Lock, "lock", ["acquire", "release"])
