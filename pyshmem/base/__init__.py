"""The base of all rooms: the job, errors, environment variables, and how PEs agree before there is a heap."""
