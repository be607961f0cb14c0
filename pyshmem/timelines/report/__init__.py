"""Prints and draws what a timeline tells: where time went, and how long it would take elsewhere."""
