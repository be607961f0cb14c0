"""Examines a machine: what works between its PEs, and what to set where something fails."""
