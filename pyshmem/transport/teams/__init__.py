"""How the members of a team, near and far, synchronise and combine data."""
