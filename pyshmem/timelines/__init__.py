"""Timelines: what each PE called, when, with which PE, and what it waited for, in one file that Perfetto opens.

calls and recording run in the PEs, on the ranges of pyshmem.diagnosis.ranges; clocks compares those of hosts; the rest reads
what the PEs have left: events, merging, arrows, chrome; taxes says where the time went, and replay with runs, steps,
flights and on_gpu what the program would save without a part of it.
"""
