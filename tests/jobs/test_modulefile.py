"""The modulefile of packaging/ gives a shell pyshmem and the site's defaults, by whatever reads modulefiles here."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MODULEFILE = Path(__file__).parents[2] / "packaging" / "modulefiles" / "pyshmem"


def command():
    """The words that print for a shell what `module` does: of Lmod or of Environment Modules."""
    lmod, modulecmd = os.environ.get("LMOD_CMD", ""), shutil.which("modulecmd")
    if not (os.access(lmod, os.X_OK) or modulecmd):
        pytest.skip("neither modulecmd nor LMOD_CMD: apt install environment-modules, or lmod")
    return [lmod if os.access(lmod, os.X_OK) else modulecmd, "bash"]


def test_the_modulefile_gives_pyshmem_with_the_sites_defaults_and_takes_them_back(tmp_path):
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "pyshmem").symlink_to(Path(sys.executable).parent / "pyshmem")
    (prefix / "etc").mkdir()
    (prefix / "etc" / "pyshmem.toml").write_text("PYSHMEM_WAIT_TIMEOUT = 61\n")
    modules = tmp_path / "modules"
    modules.mkdir()
    text = MODULEFILE.read_text()
    assert text.count("set prefix /opt/pyshmem/0.1.0\n") == text.count("set mpi mpich\n") == 1
    (modules / "pyshmem").write_text(
        text.replace("/opt/pyshmem/0.1.0", str(prefix)).replace("set mpi mpich", "set mpi sites")
    )
    (modules / "sites").write_text("#%Module1.0\nsetenv SITES_MPI loaded\n")
    words = shlex.join(command())
    script = f"""
        eval "$({words} load pyshmem)"
        echo "$SITES_MPI" "$(command -v pyshmem)" "$VIRTUAL_ENV"
        pyshmem info | grep "from $PYSHMEM_CONFIG"
        eval "$({words} unload pyshmem)"
        echo "[$PYSHMEM_CONFIG$VIRTUAL_ENV]" "$(command -v pyshmem)"
    """
    environment = {**os.environ, "MODULEPATH": str(modules), "PATH": "/usr/bin:/bin"}
    for name in ("PYSHMEM_CONFIG", "VIRTUAL_ENV", "LOADEDMODULES", "_LMFILES_"):
        environment.pop(name, None)
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=100)
    first, values, last = done.stdout.splitlines()
    assert first == f"loaded {prefix}/bin/pyshmem {prefix}", done.stderr
    assert values.endswith(f"from {prefix}/etc/pyshmem.toml: PYSHMEM_WAIT_TIMEOUT=61")
    assert last == "[] ", done.stderr
