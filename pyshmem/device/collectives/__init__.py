"""Collectives in kernels: of symmetric arrays, of tiles in registers, and the scratch memory that they exchange data in."""
