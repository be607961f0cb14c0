"""Executes a program in other orders that the memory model allows."""
