"""Stand-in for torchvision, which text models import and never run.

SGLang and transformers import image transforms when they start; PyPI's wheel does not load
beside a CPU build of torch.
"""

from torchvision import io, ops, transforms

__version__ = "0.0"
__all__ = ["io", "ops", "transforms"]
