"""The packages, their stubs, the C extension pyshmem.native._native and the C library libpyshmem, which shares its code.

Everything else is in pyproject.toml.
"""

import runpy
import sys
import sysconfig
from distutils.errors import CCompilerError, DistutilsExecError, DistutilsPlatformError
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

LIBRARY = "pyshmem.capi.libpyshmem"
VERSION = runpy.run_path("pyshmem/version.py")["__version__"]
# `pyshmem bench` runs them as the package benchmarks, which is in the folder pyshmem/suites where pyshmem is installed
SUITES = {f"pyshmem.suites.{name}": name.replace(".", "/") for name in find_packages(include=["benchmarks*"])}
# the module is one unit, which includes the others of these files, and the library two
PARTS = sorted(map(str, Path("pyshmem/native").rglob("*.[ch]")))
LANGUAGE = ["-std=gnu11", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-ffp-contract=off"]
FLAGS = [*LANGUAGE, "-O3", "-Wall", "-Wextra", "-pthread"]
# nobody opens far PEs in engine.c, so gcc knows that `far` is NULL there, and warns of accesses that are never made
NEVER_MADE = ["-Wno-array-bounds", "-Wno-stringop-overflow", "-Wno-stringop-overread"]
# installed as pyshmem.launch
LAUNCH = {f"pyshmem.{name}": name.replace(".", "/") for name in find_packages(include=["launch*"])}


def generate():
    runpy.run_path("pyshmem/capi/generate.py")["write"](Path("pyshmem/capi"))


class BuildModules(build_py):
    def run(self):
        generate()
        super().run()
        stubs = runpy.run_path("packaging/stubs.py")
        stubs["write"](Path("" if self.editable_mode else self.build_lib, "pyshmem"))


class BuildNative(build_ext):
    def get_ext_filename(self, name):
        """The C library is no module: it has the name under which the linker finds it."""
        if name.endswith("libpyshmem"):
            return f"{name.replace('.', '/')}.so"
        return super().get_ext_filename(name)

    def run(self):
        generate()
        header = Path(sysconfig.get_path("include"), "Python.h")
        if not header.is_file():
            sys.exit(
                f"pyshmem needs Python's header files to build its native module, and {header} is missing "
                "(Debian, Ubuntu: apt install python3-dev; Fedora: dnf install python3-devel)"
            )
        try:
            super().run()
        except (CCompilerError, DistutilsExecError, DistutilsPlatformError) as error:
            sys.exit(
                f"pyshmem needs a C11 compiler (Debian: apt install gcc; or set CC) to build its native module: {error}"
            )


setup(
    packages=[*find_packages(include=["pyshmem*"]), *LAUNCH, *SUITES],
    package_dir={**LAUNCH, **SUITES},
    cmdclass={"build_ext": BuildNative, "build_py": BuildModules},
    ext_modules=[
        Extension(
            "pyshmem.native._native",
            ["pyshmem/native/module.c"],
            depends=PARTS,
            py_limited_api=True,
            extra_compile_args=FLAGS,
        ),
        Extension(
            LIBRARY,
            ["pyshmem/native/shmem/libpyshmem.c", "pyshmem/native/engine.c"],
            depends=[*PARTS, "pyshmem/capi/generate.py"],
            py_limited_api=True,
            define_macros=[("PYSHMEM_VERSION", f'"{VERSION}"')],
            extra_compile_args=[*FLAGS, "-fvisibility=hidden", "-Wno-unused-function", *NEVER_MADE, "-O2", "-g0"],
            extra_link_args=["-Wl,-soname,libpyshmem.so"],
            libraries=["dl", "pthread"],
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
