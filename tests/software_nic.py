"""Builds the libfabric made of software, software_nic.c, and lets jobs use it in place of MPI's.

Run: python tests/software_nic.py FOLDER, which builds it there and prints its path.
"""

import os
import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).with_name("software_nic.c")
NATIVE = SOURCE.parents[1] / "pyshmem" / "native" / "far"
PROFILES = ("cxi", "cxi;keys", "verbs;ofi_rxm", "efa", "tcp;ofi_rxm")
VERSIONS = """
FABRIC_1.0 { global: fi_version; fi_strerror; local: *; };
FABRIC_1.1 { global: fi_fabric; } FABRIC_1.0;
FABRIC_1.3 { global: fi_getinfo; fi_freeinfo; fi_dupinfo; } FABRIC_1.1;
"""
HEAD = f"""
import sys
sys.path.insert(0, {str(SOURCE.parent)!r})
import software_nic
software_nic.use()
"""


def build(folder):
    """Return the path of the library, built in a folder where its sockets are, too."""
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "versions.map").write_text(VERSIONS)
    library = folder / "libfabric.so.1"
    command = [shutil.which("cc") or "gcc", "-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-pthread", f"-I{NATIVE}"]
    subprocess.run(
        [*command, f"-Wl,--version-script={folder / 'versions.map'}", SOURCE, "-o", library], check=True, timeout=100
    )
    return library


def use():
    """Let this process use the library that the environment names, if it names one. Before init."""
    if os.environ.get("SOFTWARE_NIC"):
        from pyshmem.transport.far import fabric

        fabric.library = lambda: os.environ["SOFTWARE_NIC"]
        os.environ.setdefault("NIC_FOLDER", str(pathlib.Path(os.environ["SOFTWARE_NIC"]).parent))


def environment(library, profile):
    """Return the variables of a job in which the NIC of a profile carries the data of a fabric."""
    return {"SOFTWARE_NIC": str(library), "PYSHMEM_FABRIC": profile}


if __name__ == "__main__":
    print(build(sys.argv[1]))
