"""Programs that are forked from a process that has their modules: signals and ends are theirs, whenever they come."""

import os
import select
import signal
import socket
import subprocess
import sys

import pytest
from jobs import WARM, python, warm, warm_server


@pytest.fixture
def client(tmp_path):
    """A client of warm programs, and its connection to this process, which plays the server. It waits for a program's id."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"{tmp_path}/socket")
        listening.listen()
        client = subprocess.Popen([sys.executable, "-I", "-S", WARM, tmp_path / "socket", "program.py"])
        connection, _ = listening.accept()
    with connection:
        text, fds, *_ = socket.recv_fds(connection, 1 << 18, 64)
        for fd in fds:
            os.close(fd)
        assert b"program.py" in text
        yield client, connection
    client.kill()
    client.wait()


def test_a_signal_that_comes_before_the_client_knows_its_program_reaches_the_program(client):
    process, connection = client
    program = subprocess.Popen(["sleep", "1000"])
    process.terminate()
    connection.send(b"%d" % program.pid)
    assert program.wait() == -signal.SIGTERM
    connection.send(b"%d" % program.returncode)
    assert process.wait() == -signal.SIGTERM


def test_a_signal_that_comes_after_the_end_of_the_program_changes_no_status(client):
    process, connection = client
    program = subprocess.Popen(["true"])
    program.wait()
    process.terminate()
    connection.send(b"%d" % program.pid)
    connection.send(b"3")
    assert process.wait() == 3


def test_the_server_outlives_clients_that_are_killed_before_they_ask_and_before_they_listen(tmp_path):
    path = warm()[-1]
    for asks in (False, True):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as killed:
            killed.connect(path)
            if asks:
                killed.send(repr(([], os.getcwd(), {}, ["-c", "import signal; signal.pause()"])).encode())
                select.select([killed], [], [])  # the id of its program has come, and is never read
        assert python("print('served')", tmp_path=tmp_path)[:2] == (0, "served\n")
    assert warm_server().poll() is None
