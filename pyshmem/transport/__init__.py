"""How a PE is reached, and how the members of a team meet."""
