"""Runs a job: the command pyshmemrun, the launchers, and what each PE's process does beside its program."""
