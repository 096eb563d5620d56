"""A 'cpu' accelerator for slime.utils.accelerator's public registry (gloo transport)."""

import psutil
import torch


def install(acc):
    from slime.utils.accelerator.base import Accelerator

    class CPUAccelerator(Accelerator):
        name = "cpu"
        device_type = "cpu"
        communication_backend_name = "gloo"

        def is_available(self):
            return True

        def device(self, index=None):
            return torch.device("cpu")

        def device_name(self, index=None):
            return "cpu"

        def set_device(self, index):
            return None

        def current_device(self):
            return "cpu"

        def device_count(self):
            return 1

        def synchronize(self, device=None):
            return None

        def current_stream(self, device=None):
            return None

        def empty_cache(self):
            return None

        def mem_get_info(self, device=None):
            vm = psutil.virtual_memory()
            return vm.available, vm.total

        def memory_allocated(self, device=None):
            return psutil.Process().memory_info().rss

        def memory_reserved(self, device=None):
            return psutil.Process().memory_info().rss

        def distributed_device_id(self, index=None):
            return None

        # fake Ray GPU ids have no device behind them
        def resolve_visible_device_id(self, physical_device_id):
            return 0

    acc.register_accelerator(
        "cpu", CPUAccelerator, lambda: True, priority=1, communication_backends=("gloo",)
    )
