"""How a PE is reached, and how the members of a team meet.

routes gives the route to a PE: an object with the operations of direct.Direct, and how the PE's memory is addressed on it.
direct reaches PEs whose heaps are mapped. mapped has the meetings of teams whose members are all mapped.
"""
