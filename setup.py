"""Builds pyshmem.host._native, the one C extension; everything else is in pyproject.toml."""

import sys
from distutils.errors import CCompilerError, DistutilsExecError, DistutilsPlatformError

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildNative(build_ext):
    def run(self):
        try:
            super().run()
        except (CCompilerError, DistutilsExecError, DistutilsPlatformError) as error:
            sys.exit(
                f"pyshmem needs a C11 compiler (Debian: apt install gcc; or set CC) to build pyshmem/host/_native.c: {error}"
            )


setup(
    cmdclass={"build_ext": BuildNative},
    ext_modules=[
        Extension(
            "pyshmem.host._native",
            ["pyshmem/host/_native.c"],
            depends=["pyshmem/host/_collectives.h", "pyshmem/host/_launch.h"],
            py_limited_api=True,
            extra_compile_args=["-std=gnu11", "-O3", "-Wall", "-Wextra", "-fno-strict-aliasing", "-ffp-contract=off"],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
