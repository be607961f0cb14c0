"""Benchmarks: ``python -m benchmarks``, or one suite: ``python -m benchmarks.pt2pt``, ``pyshmemrun -n 2 -m benchmarks.ops``.

A suite is a table of rows (pt2pt.py, ops.py, ...). A row names an operation and its bytes, bus factor and
ceiling (rows.py). Rows, figures, runner, printers, JSON and command line are one for all suites:

    __main__.py  runs suites, each in a process of its own; draws, compares and writes the tables of pages from their JSON
    command.py   the options of a suite, and the way from rows to table and JSON; cpu.py and in_job.py are its two mains
    runner.py    takes the samples, in rounds that go from peer to peer
    figures.py   statistics and ratios
    table.py     prints them; sheets.py prints sweeps, from JSON, also for pages; plots.py draws
    record.py    writes them as JSON, reads them for --compare, and writes the medians of docs/figures

There are two clocks. With jobs.py each library runs in a separate job, which is controlled by sockets: its PEs run pe.py,
and peers/ has a module for each library. With in_job.py all peers share one job, and the GPU measures the times:
operations/ has a module for each suite, and accelerator.py is the device that they use.

To add a row, add it to the suite's table, and a method of its operation's name to peers/openshmem.py or to the suite's
module in operations/. To add a suite, add a module with the table and one with the operations. To add a library to the
suites on the CPU heap, add a module in peers/ and an entry in peers/__init__.py.

Reports stand beside the suites: irregular.py, with its matrices in matrices.py and its bounds in floors.py; and
irregular_plans.py.
"""
