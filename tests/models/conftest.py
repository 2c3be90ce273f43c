"""timm imports torchvision, which a plain build of torch for CPUs needs to be patched for first."""

from holotype.models.zoo import patch_torchvision

patch_torchvision()
