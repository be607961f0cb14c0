"""Instructions that AMD GPUs execute wrongly are found, and every kernel that these tests compile is looked at."""

from types import SimpleNamespace

import pytest
import triton.compiler
from compiling import TARGETS
from hazards import faults, scanned

WIDE = "global_store_dwordx4 v[0:1], v[4:7], off"
OVERWRITES = "v_mov_b32_e32 v6, 0"
OTHER = "v_mov_b32_e32 v8, 0"
SMALL = "buffer_store_dwordx3 v[4:6], v1, s[0:3], 0 offen"
JUMP = "s_cbranch_scc1 .LBB0_2"


@pytest.mark.parametrize(
    ("lines", "archs"),
    [
        ([WIDE, OVERWRITES], {"gfx90a", "gfx942", "gfx950"}),
        ([WIDE, OTHER, OVERWRITES], {"gfx942", "gfx950"}),
        ([WIDE, "s_nop 0", OVERWRITES], {"gfx942", "gfx950"}),
        ([WIDE, "s_nop 1", OVERWRITES], set()),
        ([WIDE, OTHER, OTHER, OVERWRITES], set()),
        ([WIDE, "v_cmp_eq_u32_e32 vcc, v6, v7", OTHER], set()),
        ([SMALL, OVERWRITES], {"gfx90a", "gfx942", "gfx950"}),
        ([SMALL.replace("0 offen", "s4 offen"), OVERWRITES], set()),
        (["global_store_dwordx2 v[0:1], v[6:7], off", OVERWRITES], set()),
        ([WIDE, JUMP, OTHER, OTHER, ".LBB0_2:", OVERWRITES], {"gfx942", "gfx950"}),
        ([WIDE, "s_branch .LBB0_2", OVERWRITES, ".LBB0_2:", OTHER], set()),
        ([".LBB0_2:", OVERWRITES, WIDE, JUMP], {"gfx942", "gfx950"}),
        (["v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1] op_sel:[0,1,0]"], {"gfx950"}),
        (["v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1] op_sel_hi:[1,0,1]"], set()),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_a_gpu_executes_wrongly_is_found(lines, archs):
    text = "\n".join(f"\t{line}  ; a comment" for line in [*lines, "s_endpgm"]) + "\n\t.section x\n\t" + OVERWRITES
    assert {arch for arch in TARGETS if arch != "nvidia" and faults(text, arch)} == archs


def test_every_kernel_that_is_compiled_for_an_amd_gpu_is_looked_at():
    source = SimpleNamespace(fn=SimpleNamespace(__name__="wrong"))
    look = scanned(lambda *arguments, **named: SimpleNamespace(asm={"amdgcn": f"{WIDE}\n{OVERWRITES}\n"}))
    with pytest.raises(AssertionError, match="wrong on gfx942: .*v_mov_b32_e32 v6"):
        look(source, target=TARGETS["gfx942"])
    look(source, target=TARGETS["nvidia"])
    assert triton.compiler.compile.__qualname__.startswith("scanned"), "conftest.py has not put it in"
