"""The headers of the C library under strict standards, and what builds look for: pkg-config, CMake, the compiler's options."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

BIN = pathlib.Path(sys.executable).parent
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
PROGRAM = """
#include <shmemx.h>
int main(void) {
    double before = shmemx_wtime(), after = shmemx_wtime();
    return !(0 < before && before <= after);
}
"""
FOUND = """
#include <shmem.h>
#include <stdio.h>
int main(void) {
    int major, minor;
    shmem_info_get_version(&major, &minor);
    printf("%d.%d", major, minor);
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(program C)
find_package(OpenSHMEM 1.4 REQUIRED)
add_executable(by_target program.c)
target_link_libraries(by_target OpenSHMEM::OpenSHMEM)
add_executable(program program.c)
target_include_directories(program PRIVATE ${OpenSHMEM_INCLUDE_DIRS})
target_link_libraries(program ${OpenSHMEM_LIBRARIES})
find_package(OpenSHMEM 9 QUIET)
if(OpenSHMEM_FOUND)
  message(FATAL_ERROR "OpenSHMEM 9")
endif()
"""


def built(wrapper, compiler, source, path, *options):
    """Compile and link the text; skip without the compiler."""
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    path.write_text(source)
    variables = {**os.environ, "PYSHMEM_CC": compiler, "PYSHMEM_CXX": compiler}
    command = [BIN / wrapper, *STRICT, *options, path, "-o", path.with_suffix("")]
    return subprocess.run(command, capture_output=True, text=True, env=variables)


@pytest.mark.parametrize("standard", ["c99", "c11", "c17", "c2x", "gnu11"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_headers_are_strict_c_and_need_no_feature_macro(compiler, standard, tmp_path):
    done = built("oshcc", compiler, PROGRAM, tmp_path / "program.c", f"-std={standard}")
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([tmp_path / "program"]).returncode == 0


@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_headers_are_strict_cpp(compiler, standard, tmp_path):
    done = built("oshc++", compiler, PROGRAM, tmp_path / "program.cpp", f"-std={standard}")
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([tmp_path / "program"]).returncode == 0


@pytest.mark.parametrize("header", ["shmem.h", "shmemx.h", "mpp/shmem.h", "mpp/shmemx.h", "pshmem.h"])
def test_a_header_can_be_included_alone_and_again(header, tmp_path):
    source = f"#include <{header}>\n#include <{header}>\nint main(void) {{ return 0 * SHMEM_CMP_EQ; }}\n"
    done = built("oshcc", "cc", source, tmp_path / "program.c")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("tool", ["pkg-config", "cmake"])
def test_builds_find_the_library_as_openshmem_of_its_version(tool, tmp_path):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    (tmp_path / "program.c").write_text(FOUND)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    prefix = subprocess.run([BIN / "oshcc", "--prefix"], capture_output=True, text=True, check=True).stdout.strip()
    commands = {
        "pkg-config": f"PKG_CONFIG_PATH={prefix}/pkgconfig; export PKG_CONFIG_PATH; ! pkg-config 'openshmem >= 9';"
        " cc program.c $(pkg-config --cflags --libs 'openshmem >= 1.4') -o program",
        "cmake": f"cmake -DCMAKE_PREFIX_PATH={prefix} . && cmake --build .",
    }
    done = subprocess.run(["sh", "-ec", commands[tool]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([tmp_path / "program"], capture_output=True, text=True).stdout == "1.6"


@pytest.mark.parametrize("option", ["--show", "-show", "--showme"])
def test_the_compiler_shows_its_command_by_the_options_of_other_wrappers(option):
    """Builds ask for it without a source too, for the paths alone."""
    alone = subprocess.run([BIN / "oshcc", option], capture_output=True, text=True).stdout.split()
    whole = subprocess.run([BIN / "oshcc", option, "x.c"], capture_output=True, text=True).stdout.split()
    assert alone[0] == "cc" and alone[-1] == "-lpyshmem" and any(each.startswith("-I") for each in alone)
    assert whole == [*alone[:2], "x.c", *alone[2:]]
