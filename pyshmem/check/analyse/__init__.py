"""Reads the records of all PEs, and finds accesses that nothing orders."""
