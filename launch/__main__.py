"""``python -m pyshmem.launch`` is ``pyshmemrun``."""

import sys

from .run import main

sys.exit(main())
