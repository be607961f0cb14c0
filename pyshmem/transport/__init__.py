"""Routes to PEs, and the synchronisation of teams.

routes returns the route to a PE: an object with the operations of near.Near, which defines how it addresses the memory
of the PE. direct contains the routes to PEs with mapped heaps, mpi the route to PEs of other nodes. mapped contains the
barriers and collectives of teams.
"""
