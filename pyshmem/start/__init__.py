"""The start of a job: requirements, how the processes were started, the nodes, and the choice of GPUs."""
