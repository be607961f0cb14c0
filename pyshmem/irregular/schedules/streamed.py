"""Streamed: neighbouring tiles with about a thousand atoms, whose values are made all at once and then summed by tiles.

Atoms are loaded as they lie, and none of these loads waits for where tiles begin. Best for large matrices of short tiles of
like length: the longest of a program sets how often all of them are looked at. Works with several sums go by length.
Idea: CSR-Stream (Greathouse and Daga, SC 2014).
"""

from __future__ import annotations

from pyshmem.irregular.schedules import by_length

SCHEDULE = by_length.SCHEDULE._replace(order="stream")
