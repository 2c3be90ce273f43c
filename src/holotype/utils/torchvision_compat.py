"""Make `import torchvision` work beside a torch build that lacks its compiled operators.

timm imports torchvision. Where torch is a CPU build and torchvision is the stock wheel, torchvision's
compiled operators do not load, and its import then stops with `operator torchvision::nms does not exist`,
because it describes two of them (`nms`, `qnms`) to the compiler. Nothing in Holotype calls either, so it is
enough that they have a schema. The cure acts only where the import fails for exactly that reason;
every other failure is passed on as it is.
"""

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_SYMPTOM = "torchvision::nms does not exist"

# The schemas vanish with the object that defined them, so it lives as long as the process.
_library: torch.library.Library | None = None


def patch_torchvision() -> bool:
    """Import torchvision, with the missing schemas if need be; say whether they were needed. Idempotent."""
    global _library
    try:
        import torchvision
    except (RuntimeError, ImportError) as error:
        if _SYMPTOM not in str(error) or _library is not None:
            raise
        _library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            _library.define(schema)
        import torchvision  # noqa: F401
    return _library is not None


patch_torchvision()
