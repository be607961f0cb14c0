"""What a kernel compiled for an AMD GPU takes of a compute unit, read from its code: how many programs one runs at once."""

from __future__ import annotations

import re
import struct
from typing import Any, NamedTuple

REGISTERS, GRANULE, SIMDS, MOST_WAVES = 512, 8, 4, 8  # of a lane, as they are given out; of a compute unit; of a SIMD
LOCAL = {"gfx950": 160 << 10}  # bytes of LDS of a compute unit
USUAL_LOCAL = 64 << 10
_FIELDS = {
    "registers": "vgpr_count",
    "scratch": "private_segment_fixed_size",
    "spilled": "vgpr_spill_count",
    "moved": "sgpr_spill_count",
}


class Taken(NamedTuple):
    """registers: vector registers of a lane, those for accumulation included.  scratch: bytes of memory of a lane.

    spilled: vector registers that are kept in scratch.  moved: scalar registers that are kept in lanes of vector registers.
    shared: bytes of LDS.  code: bytes of instructions.
    """

    registers: int
    scratch: int
    spilled: int
    moved: int
    shared: int
    code: int
    warps: int
    arch: str

    @property
    def programs(self) -> int:
        """How many programs a compute unit runs at once."""
        granules = -(-max(self.registers, 1) // GRANULE) * GRANULE
        waves = SIMDS * min(REGISTERS // granules, MOST_WAVES)
        local = LOCAL.get(self.arch, USUAL_LOCAL)
        return min(waves // self.warps, local // self.shared if self.shared else waves)


def taken(compiled: Any) -> Taken:
    """Return what a kernel takes that Triton has compiled for an AMD GPU."""
    found, metadata = compiled.asm["amdgcn"], compiled.metadata
    numbers = {name: int(re.search(rf"\.{field}:\s*(\d+)", found)[1]) for name, field in _FIELDS.items()}  # type: ignore[index]
    code = _section(compiled.asm["hsaco"], b".text")
    return Taken(**numbers, shared=metadata.shared, code=code, warps=metadata.num_warps, arch=str(metadata.target.arch))


def _section(binary: bytes, name: bytes) -> int:
    """Return the size of a section of an ELF file of 64 bits, 0 without one."""
    (headers,) = struct.unpack_from("<Q", binary, 40)
    size, count, names = struct.unpack_from("<HHH", binary, 58)
    sections = [struct.unpack_from("<IIQQQQ", binary, headers + size * place) for place in range(count)]
    texts = sections[names][4]
    return next((each[5] for each in sections if binary[texts + each[0] :].startswith(name + b"\0")), 0)
