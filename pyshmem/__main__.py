"""``python -m pyshmem`` is ``pyshmem info``."""

import sys

from pyshmem.launch.info import main

sys.exit(main())
