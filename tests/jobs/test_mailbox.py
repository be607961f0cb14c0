"""Mailboxes, at which processes of one user pass each other descriptors, whatever others send or put in their place."""

import array
import os
import socket
import stat

import pytest
from jobs import mpiexec
from other_users import as_another_user, needs_root

from pyshmem.launch.run import leftovers
from pyshmem.memory import mailbox as module
from pyshmem.memory.mailbox import PREFIX, Mailbox


def text_of(fd):
    try:
        return os.pread(fd, 99, 0)
    finally:
        os.close(fd)


def made(text):
    fd = os.memfd_create("test")
    os.write(fd, text)
    return fd


def name_of(mailbox):
    return os.path.join(mailbox.place.folder, "s")


def abstract_names():
    """The inodes of the sockets of this machine that have abstract names."""
    with open("/proc/net/unix") as file:
        rows = [line.split() for line in file]
    return {row[6] for row in rows if len(row) > 7 and row[7].startswith("@")}


def inode_of(mailbox):
    return str(os.fstat(mailbox._socket.fileno()).st_ino)


def test_messages_that_are_not_of_this_job_are_dropped_and_their_descriptors_closed():
    before = len(os.listdir("/proc/self/fd"))
    with Mailbox() as here, Mailbox() as there, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as odd:
        fds = [made(b"foreign")], [made(b"ours")]
        given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds[0]))]
        key = here.place.key
        for text in (b"", b"x", key, key + b"\0" * 5, key + b"\7\0\0\0", bytes(16) + b"\1\0\0\0", os.urandom(20)):
            odd.sendmsg([text], given, 0, name_of(here))
        there.send(fds[1], here.place, 1)
        assert text_of(here.receive({1: 1})[1][0]) == b"ours"
        for each in (*fds[0], *fds[1]):
            os.close(each)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_a_late_process_sends_to_an_earlier_mailbox_is_not_in_the_next_one():
    with Mailbox() as sender:
        with Mailbox() as first:
            old = first.place
        with Mailbox() as second:
            late, own = made(b"late"), made(b"in time")
            with pytest.raises(OSError, match="pyshmem-mailbox-"):
                sender.send([late], old, 1)
            sender.send([late], second.place._replace(key=old.key), 1)
            sender.send([own], second.place, 1)
            assert text_of(second.receive({1: 1})[1][0]) == b"in time"
            os.close(late)
            os.close(own)


def test_descriptors_of_several_processes_arrive_in_any_order():
    with Mailbox() as here, Mailbox() as there:
        fds = {rank: made(b"%d" % rank) for rank in (3, 1, 2)}
        for rank, fd in fds.items():
            there.send([fd] * rank, here.place, rank)
        found = here.receive({rank: rank for rank in (1, 2, 3)})
        assert {rank: [text_of(fd) for fd in every] for rank, every in found.items()} == {
            rank: [b"%d" % rank] * rank for rank in (1, 2, 3)
        }
        for fd in fds.values():
            os.close(fd)


def test_who_does_not_send_is_named_after_the_limit(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.05)
    with Mailbox() as here, Mailbox() as there:
        own = made(b"")
        there.send([own], here.place, 2)
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match=r"no descriptors from node rank 1, 3 in 0\.05 s"):
            here.receive({1: 1, 2: 1, 3: 1})
        assert len(os.listdir("/proc/self/fd")) == before
        os.close(own)


def test_a_mailbox_has_no_abstract_name_and_leaves_none_behind(monkeypatch):
    with Mailbox() as here, Mailbox() as there:
        folder = here.place.folder
        there.send([0], here.place, 0)
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert not {inode_of(here), inode_of(there)} & abstract_names()
    assert not os.path.exists(folder)
    monkeypatch.setattr(module, "SHARED", "/nowhere")
    monkeypatch.setenv("TMPDIR", "/nowhere")
    with Mailbox() as here, Mailbox() as there:
        assert here.place.folder == ""
        with pytest.raises(OSError, match="No such file"):
            there.send([0], here.place)
        assert not {inode_of(here), inode_of(there)} & abstract_names()


def test_a_folder_with_a_long_name_serves_where_there_is_no_other(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 200)
    long.mkdir()
    monkeypatch.setattr(module, "SHARED", str(tmp_path / "none"))
    monkeypatch.setenv("TMPDIR", str(long))
    with Mailbox() as here, Mailbox() as there:
        own = made(b"far down")
        there.send([own], here.place, 1)
        assert here.place.folder.startswith(str(long))
        assert text_of(here.receive({1: 1})[1][0]) == b"far down"
        os.close(own)
    assert not list(long.iterdir())


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_no_descriptor_goes_to_a_folder_that_others_may_enter(mode):
    with Mailbox() as here, Mailbox() as there:
        os.chmod(here.place.folder, mode)
        with pytest.raises(PermissionError, match="others may enter"):
            there.send([0], here.place)


def test_no_descriptor_goes_through_a_symbolic_link(tmp_path):
    with Mailbox() as here, Mailbox() as there:
        (tmp_path / "link").symlink_to(here.place.folder)
        with pytest.raises(OSError, match="link"):
            there.send([0], here.place._replace(folder=str(tmp_path / "link")))


@needs_root
def test_another_user_neither_reaches_a_mailbox_nor_gets_a_descriptor(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)
    with Mailbox() as here, Mailbox() as there:

        def send():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as odd:
                odd.sendto(b"x", name_of(here))

        assert "PermissionError" in as_another_user(send)
        with pytest.raises(PermissionError, match="another user's"):
            there.send([0], here.place._replace(folder=str(theirs)))


@needs_root
def test_a_message_with_the_key_but_of_another_user_is_dropped(monkeypatch):
    """As if the folder were open to all: the kernel tells who sends."""
    monkeypatch.setattr(module, "_SECONDS", 1.0)
    with Mailbox() as here:
        os.chmod(here.place.folder, 0o777)
        os.chmod(name_of(here), 0o777)

        def send():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as odd:
                given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made(b"theirs")]))]
                odd.sendmsg([here.place.key + b"\1\0\0\0"], given, 0, name_of(here))

        assert as_another_user(send) == ""
        with pytest.raises(OSError, match="no descriptors from node rank 1"):
            here.receive({1: 1})


def test_pyshmemrun_removes_the_mailboxes_of_killed_processes_and_no_others():
    with Mailbox() as living:
        dead = module.tempfile.mkdtemp(prefix=PREFIX, dir=module.SHARED)
        found = {dead, living.place.folder} & set(leftovers._leftovers("mpich", "1", 0.0))
        leftovers._remove_unused(found)
        assert os.path.exists(living.place.folder) and not os.path.exists(dead)


FAILING = """
import os
from mpi4py import MPI
from pyshmem.memory import descriptors
from pyshmem.memory.mailbox import Mailbox

def refuse(*arguments):
    raise PermissionError(1, "not now")

kept = Mailbox.send, descriptors._fetch
node, found = MPI.COMM_WORLD, []
for turn in range(4):
    own = os.memfd_create("test")
    os.write(own, b"%d of %d" % (turn, node.rank))
    if turn % 2 == 0 and node.rank == 1:  # nothing goes from here, and the others do not fetch it
        Mailbox.send = refuse
    if turn % 2 == 0 and node.rank != 1:
        descriptors._fetch = refuse
    try:
        fds = descriptors.Exchange(node).swap(own)
        found.append([os.pread(fd, 99, 0).decode() for fd in fds if fd >= 0])
    except OSError:
        found.append("failed")
    Mailbox.send, descriptors._fetch = kept
    node.Barrier()
others = [rank for rank in range(node.size) if rank != node.rank]
assert found[1::2] == [[f"{turn} of {rank}" for rank in others] for turn in (1, 3)], found
assert node.rank == 1 or found[0::2] == ["failed"] * 2, found
print("right")
"""


@pytest.mark.parametrize("pes", [2, 3, 11])
def test_after_a_failed_exchange_the_next_one_has_its_own_descriptors(pes, tmp_path):
    status, out, err = mpiexec(pes, FAILING, tmp_path=tmp_path)
    assert (status, out) == (0, "right\n" * pes), err
