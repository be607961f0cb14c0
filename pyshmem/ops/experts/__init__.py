"""Rows to the PEs of their experts and back: moe_dispatch, moe_combine."""
