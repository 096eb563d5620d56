"""Stand-in module; see torchvision/__init__.py."""

from enum import Enum

from torchvision.inert import inert as __getattr__
from torchvision.transforms import functional, v2


class InterpolationMode(Enum):
    """The names that image processors map their settings to."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


__all__ = ["InterpolationMode", "__getattr__", "functional", "v2"]
