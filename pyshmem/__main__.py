"""``python -m pyshmem`` is ``pyshmem``."""

import sys

from pyshmem.launch.commands import main

sys.exit(main(sys.argv[1:]))
