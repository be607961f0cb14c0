"""Benchmarks: the same rows through pyshmem and through its peers, side by side. ``python -m benchmarks.host``.

rows.py says what is measured, peers/ how each library does it, pe.py runs inside the job, jobs.py starts it, runner.py
takes the samples, table.py prints them. A new library is one module in peers/ and one entry in peers/__init__.py.
"""
