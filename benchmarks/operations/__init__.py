"""What the rows of the suites in one job do: a module for each suite, with a class Operations."""
