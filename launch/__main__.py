"""``python -m pyshmem.launch`` is ``pyshmemrun``."""

import sys

from .run.command import main

sys.exit(main())
