"""What torch's autocast does with operands: products and attention take its type, norms take float32.

float64 and 8 bits stay as they are, as everywhere in torch.
"""

from __future__ import annotations

from typing import Any

import torch

ELIGIBLE = (torch.float32, torch.float16, torch.bfloat16)
enabled = torch._C._is_any_autocast_enabled


def lowered(*arrays: Any) -> tuple[Any, ...]:
    """Return arrays in the type that autocast has on their devices."""
    return tuple(each.to(torch.get_autocast_dtype(each.device.type)) if _taken(each) else each for each in arrays)


def widened(*arrays: Any) -> tuple[Any, ...]:
    """Return arrays in float32, where autocast is on for their devices."""
    return tuple(each.to(torch.float32) if _taken(each) else each for each in arrays)


def _taken(each: Any) -> bool:
    return isinstance(each, torch.Tensor) and each.dtype in ELIGIBLE and torch.is_autocast_enabled(each.device.type)
