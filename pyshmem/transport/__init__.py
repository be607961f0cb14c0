"""Routes to PEs, and the synchronisation of teams.

near_or_far returns the route to a PE: an object with the operations of route.Route, which defines how it addresses the PE's
memory. near contains the routes to near PEs, whose memory is mapped on this node, far the routes to PEs of other nodes,
and teams the barriers and collectives of teams.
"""
