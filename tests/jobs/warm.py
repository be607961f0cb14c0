"""Forks the processes of programs from one that has imported torch and Triton: most of the time that a PE takes to start.

`python -I -S warm.py SOCKET PROGRAM arguments ...` is what a launcher starts in place of Python. It gives its files, its
environment and its signals to the program's process, ends as that ends, and takes it along if it is killed. It keeps the files
open: a launcher that sees the end of one kills what has not ended.
"""

import array
import fcntl
import io
import os
import select
import signal
import socket
import sys
from contextlib import suppress

SETTLED = b"settled?"  # the same in jobs.py
HIGH = 512  # above the numbers of all files of a program
FORWARDED = (
    signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGABRT, signal.SIGRTMAX,
)  # fmt: skip


def follow(path, arguments):
    """Have the program run. Return the status of its process, -n if signal n killed it."""
    fds = [number for number in map(int, os.listdir("/proc/self/fd")) if is_open(number)]
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until there is a process to pass them on to
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        text = repr((fds, os.getcwd(), dict(os.environ), arguments)).encode()
        server.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        pid = int(server.recv(100))
        for number in FORWARDED:
            signal.signal(number, lambda number, frame: pass_on(pid, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        return int(server.recv(100))


def pass_on(pid, number):
    with suppress(ProcessLookupError):  # ended by now: its status comes
        os.kill(pid, number)


def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def end(status):
    """End this process with a status, or by the signal -status."""
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):  # which have no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def serve(path):
    """Fork a process for each program, until standard input ends. Return the program and its arguments in that process.

    Each client is told the id of its program's process, and its status; the process is killed if its client has been killed.
    Who asks whether all is settled is told so when no process is left whose client has been killed.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(path)
    listening.listen(64)
    print("ready", flush=True)
    clients, programs = {}, {}  # a client's process, and the client and the id of a process
    asking = []
    while 0 not in (ready := select.select([0, listening, *clients, *programs], [], [])[0]):
        if listening in ready:
            client, _ = listening.accept()
            text, fds, *_ = socket.recv_fds(client, 1 << 18, 64)
            if text == SETTLED:
                asking.append(client)
            elif not text:  # it has been killed
                client.close()
            else:
                pid = os.fork()
                if pid == 0:
                    os.setsid()
                    for each in (listening, client, *asking, *(follower for follower, _ in programs.values())):
                        each.detach()  # or it would close a file of the program, which has its number by then
                    return settle(fds, *eval(text))
                for fd in fds:
                    os.close(fd)
                process = os.pidfd_open(pid)
                clients[client], programs[process] = process, (client, pid)
                tell(client, pid)
        for client in clients.keys() & ready:
            signal.pidfd_send_signal(clients.pop(client), signal.SIGKILL)
        for process in programs.keys() & ready:
            client, pid = programs.pop(process)
            clients.pop(client, None)
            tell(client, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            client.close()
            os.close(process)
        if all(client in clients for client, _ in programs.values()):
            while asking:
                with asking.pop() as client:
                    tell(client, 0)
    for process, (_, pid) in programs.items():
        signal.pidfd_send_signal(process, signal.SIGKILL)
        os.waitpid(pid, 0)  # so that its time is counted
    os._exit(0)


def tell(client, number):
    with suppress(BrokenPipeError, ConnectionResetError):  # it has been killed
        client.send(b"%d" % number)


def settle(fds, numbers, folder, environment, arguments):
    """Give this process the files, the folder and the environment of the client, and no other files."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, HIGH) for fd in fds]
    os.closerange(0, HIGH)
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = os.environ.pop("WARM_EXECUTABLE", sys.executable)
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout = sys.__stdout__ = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    return arguments


def run():
    """What Python does with the program, the module after -m or the text after -c that sys.argv begins with."""
    if os.environ.get("PYTHONFAULTHANDLER"):
        __import__("faulthandler").enable()
    path = sys.argv[0]
    main = sys.modules["__main__"] = type(sys)("__main__")
    if path == "-m":
        sys.path[0] = os.getcwd()
        del sys.argv[0]
        return runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    if path == "-c":
        sys.path[0] = ""
        text = sys.argv.pop(1)
    else:
        sys.path[0] = os.path.dirname(path)
        main.__file__ = path
        with open(path) as file:
            text = file.read()
    try:
        exec(compile(text, path, "exec"), main.__dict__)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001
        error.with_traceback(error.__traceback__.tb_next)  # the program's lines alone
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


if sys.argv[1] == "--serve":
    import runpy

    import preloaded

    preloaded.load()
    sys.argv = serve(sys.argv[2])
    run()
else:
    end(follow(sys.argv[1], sys.argv[2:]))
