"""Operands and wanted results for the operators of pyshmem.ops."""

import pyshmem as shmem
import torch
from pyshmem import ops
from pyshmem.ops.shares import share_of, start_of
from support import here

TILE = (16, 16, 16)
BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
SIZES = (37, 28, 34)


def random(rows, columns, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator).to(dtype).to(here())


def mine(size):
    me, n = shmem.my_pe(), shmem.n_pes()
    return slice(start_of(size, me, n), start_of(size, me, n) + share_of(size, me, n))


class Case:
    """The operands of this PE, the length that the PEs divide, and the result that is wanted here, in float64."""

    def __init__(self, operator, split="rows", sizes=SIZES, dtype=torch.float32, seed=1):
        M, N, K = sizes
        self.operator, self.split, self.dtype = operator, split, dtype
        a, b = random(M, K, seed, dtype), random(K, N, seed + 1, dtype)
        whole = a.double() @ b.double()
        if operator == "gemm_all_gather":
            rows = split == "rows"
            self.a, self.b = (a[mine(M)], b) if rows else (a, b[:, mine(N)].contiguous())
            self.wanted, self.size = whole, M if rows else N
        elif operator == "all_gather_gemm":
            N = N // shmem.n_pes() * shmem.n_pes()
            self.a, self.b = a[mine(M)], b[:, :N][:, mine(N)].contiguous()
            self.wanted, self.size = whole[:, :N][:, mine(N)], M
        else:
            self.a, self.b, self.size = a[:, mine(K)].contiguous(), b[mine(K)], K
            self.wanted = whole[mine(M)] if operator == "gemm_reduce_scatter" else whole

    def call(self, **options):
        options.setdefault("tile", TILE)
        if self.operator == "gemm_all_gather":
            options["split"] = self.split
        return getattr(ops, self.operator)(self.a, self.b, size=self.size, **options)

    def check(self, result, note=""):
        assert result.shape == self.wanted.shape
        error = (result.double() - self.wanted).norm() / self.wanted.norm().clamp(min=1e-30)
        assert error < BOUNDS[self.dtype], f"PE {shmem.my_pe()}: {self.operator} {note}: relative error {error:.1e}"
