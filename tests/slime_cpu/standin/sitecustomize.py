"""Loaded by every Python process that has this directory on PYTHONPATH (driver, Ray workers,
SGLang children).  Does nothing unless SLIME_CPU=1.  Installs *lazy* import hooks only, so that
processes which never import slime/torch pay nothing."""

import os

if os.environ.get("SLIME_CPU") == "1":
    import importlib.abc
    import importlib.util
    import sys

    # module name -> function(module) run right after the module body was executed
    POST = {
        "slime.utils.accelerator": ("slime_cpu.accelerator", "install"),
        "slime.backends.sglang_utils.sglang_engine": ("slime_cpu.probe", "wrap_engine"),
        "slime.ray.rollout": ("slime_cpu.probe", "wrap_rollout"),
        "slime.ray.utils": ("slime_cpu.probe", "wrap_lock"),
        "ray._private.services": ("slime_cpu.loopback", "install"),
        "live_eval.subscriber.ray_receiver": ("slime_cpu.faults", "install"),
        "live_eval.subscriber.ray_facade": ("slime_cpu.faults", "install_member"),
    }
    # module name -> stand-in module that is loaded instead
    REDIRECT = {"slime.backends.megatron_utils.actor": "slime_cpu.actor"}

    class _Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name in REDIRECT:
                real = importlib.util.find_spec(REDIRECT[name])
                return importlib.util.spec_from_file_location(name, real.origin)
            if name not in POST:
                return None
            for f in sys.meta_path:
                if f is self or not hasattr(f, "find_spec"):
                    continue
                spec = f.find_spec(name, path, target)
                if spec is not None and spec.loader is not None:
                    mod, fn = POST[name]
                    orig = spec.loader.exec_module

                    def exec_module(m, orig=orig, mod=mod, fn=fn):
                        orig(m)
                        getattr(importlib.import_module(mod), fn)(m)

                    spec.loader.exec_module = exec_module
                    return spec
            return None

    sys.meta_path.insert(0, _Finder())
