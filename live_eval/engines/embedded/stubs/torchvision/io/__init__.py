"""Stand-in module; see torchvision/__init__.py."""

from torchvision.inert import inert as __getattr__

__all__ = ["__getattr__"]
