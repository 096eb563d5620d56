"""Stand-in module; see torchvision/__init__.py."""

from torchvision.inert import inert as __getattr__
from torchvision.transforms.v2 import functional

__all__ = ["__getattr__", "functional"]
