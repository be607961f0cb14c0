"""What the tests share: values that name their sender and turn, and the element types of the specification."""

import torch

GUARD = 77  # follows every buffer: a call that writes too much is seen

RMA_DTYPES = [
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
AMO_INTEGERS = [torch.int32, torch.int64, torch.uint32, torch.uint64]
AMO_DTYPES = [*AMO_INTEGERS, torch.float32, torch.float64]


def payload(pe, turn, count, dtype, device="cpu"):
    """``count`` values that tell who sent them, when, and each its place; small enough for 8 bits."""
    values = (torch.arange(count) * 7 + pe * 31 + turn * 13) % 100
    if dtype in (torch.uint16, torch.uint32, torch.uint64):
        return torch.from_numpy(values.numpy().astype(str(dtype).removeprefix("torch."))).to(device)
    return values.to(dtype).to(device)
