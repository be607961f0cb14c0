"""Symmetric memory: heaps, their allocator and areas, and how processes map each other's memory."""
