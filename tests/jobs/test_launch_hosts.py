"""--hosts, --hostfile and -N of pyshmemrun: the options that each launcher gets; and --dry-run."""

import argparse
import shlex

import pytest
from pyshmem.launch.run import hosts, command as run
from pyshmem.launch.run.launchers import LaunchError


def words(launcher, *arguments, pes=4):
    parser = argparse.ArgumentParser()
    hosts.add_options(parser)
    options = parser.parse_args([*map(str, arguments)])
    options.np = pes
    return hosts.words(options, launcher)


@pytest.mark.parametrize(
    "launcher, arguments, wanted",
    [
        ("mpich", ["--hosts", "a,b"], ["-hosts", "a:2,b:2"]),
        ("mpich", ["--hosts", "a:3,b:1"], ["-hosts", "a:3,b:1"]),
        ("mpich", ["--hosts", "a,b,c"], ["-hosts", "a:2,b:2,c:2"]),
        ("mpich", ["-N", 2], ["-ppn", "2"]),
        ("intelmpi", ["--hosts", "a:3,b:1"], ["-hosts", "a,a,a,b", "-ppn", "1"]),
        ("intelmpi", ["-N", 2], ["-ppn", "2"]),
        ("openmpi", ["--hosts", "10.0.0.1,b.site", "-N", 4], ["--host", "10.0.0.1:4,b.site:4"]),
        ("srun", ["--hosts", "a,b"], ["--nodes=2", "--nodelist=a,b", "--ntasks-per-node=2"]),
        ("srun", ["-N", 2], ["--ntasks-per-node=2"]),
        ("srun", [], []),
    ],
)
def test_each_launcher_gets_the_hosts_in_its_own_words(launcher, arguments, wanted):
    assert words(launcher, *arguments) == wanted


def test_a_hostfile_may_be_written_for_mpich_or_open_mpi(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# the machines\na:3\n\nb slots=1  # the old one\nc slots = 2\nd\n")
    assert words("mpich", "--hostfile", path, pes=7) == ["-hosts", "a:3,b:1,c:2,d:2"]


@pytest.mark.parametrize(
    "launcher, arguments, said",
    [
        ("mpich", ["--hosts", "a,,b"], "--hosts: got ''; expected host names"),
        ("mpich", ["--hosts", "a b"], "--hosts: got 'a b'; expected host names"),
        ("mpich", ["--hosts", "a:1,b:2"], "--hosts: got room for 3 PEs; expected room for the 4 of -n"),
        ("mpich", ["--hostfile", "/nothing"], "--hostfile: got '/nothing': No such file or directory; expected a"),
        ("srun", ["--hosts", "a:3,b:1"], "--hosts: got a:3,b:1; expected equally many PEs on each host with srun"),
        ("openmpi", ["-N", 2], "-N: got no --hosts"),
    ],
)
def test_what_no_launcher_can_do_is_refused(launcher, arguments, said):
    with pytest.raises(LaunchError) as refused:
        words(launcher, *arguments)
    assert str(refused.value).startswith(said)


def test_dry_run_prints_the_command_line_and_starts_nothing(tmp_path, capsys):
    program = tmp_path / "prog.py"
    program.write_text("raise SystemExit(3)")
    assert run.main(["-n", "4", "--hosts", "a:3,b:1", "--launcher", "mpich", "--dry-run", str(program), "x y"]) == 0
    line = shlex.split(capsys.readouterr().out)
    assert line[-2:] == [str(program), "x y"] and line[line.index("-hosts") + 1] == "a:3,b:1"
