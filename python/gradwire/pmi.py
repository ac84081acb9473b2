"""The launcher's half of PMI-1, the protocol by which ranks of MPICH and its kin learn who they are and find each
other: for ranks that another launcher has started. `serve` starts this file as a process of its own, since ranks
still ask in MPI_Finalize, after their Python has ended; `join` connects a rank with it."""

import itertools
import os
import secrets
import selectors
import socket
import subprocess
import sys
import threading
import time

WAIT_S = 300  # for ranks that do not come, as torch.distributed waits
GRACE_S = 5  # before a rank ends itself: the launcher that started it says better why
LONGEST = 600  # characters of a value that MPICH 4.0 reads within the limits of ANSWERS
_servers = []  # kept: each ends with its connections, of which the pipe from this process is the first
ANSWERS = {"init": "response_to_init pmi_version=1 pmi_subversion=1",
           "get_maxes": "maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
           "get_universe_size": "universe_size size={ranks}",
           "get_appnum": "appnum appnum=0",
           "get_my_kvsname": "my_kvsname kvsname=gradwire",
           "finalize": "finalize_ack"}


# ---- in the ranks ----

def serve(ranks, local):
    """Starts the server; returns the port and the token for `join`. local: all ranks are on this host."""
    if local or not socket.has_dualstack_ipv6():
        listener = socket.create_server(("127.0.0.1" if local else "", 0), backlog=2 * ranks)
    else:
        listener = socket.create_server(("", 0), family=socket.AF_INET6, backlog=2 * ranks, dualstack_ipv6=True)
    token = secrets.token_hex(8)
    with listener:
        fd = listener.fileno()
        _servers.append(subprocess.Popen([sys.executable, "-I", __file__, str(fd), str(ranks)], pass_fds=[fd],
                                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
                                         env={**os.environ, "GRADWIRE_PMI_TOKEN": token}))
        return str(listener.getsockname()[1]), token


def join(host, port, token, rank):
    """The descriptor for $PMI_FD, once all ranks have come. From then on this process ends when another breaks down."""
    watch, line = (socket.create_connection((host, int(port)), WAIT_S) for _ in range(2))
    watch.sendall(f"{token} {rank} watch\n".encode())
    watch.settimeout(None)
    threading.Thread(target=heed, args=(watch, rank), daemon=True).start()
    line.sendall(f"{token} {rank} {host_key()}\n".encode())
    if not line.recv(1):  # one byte: what follows is for MPI
        raise ConnectionError("the server of rank 0 has ended")
    line.settimeout(None)
    return line.detach()


def heed(watch, rank):
    """Waits for the server's word that the job has broken down, and ends this process."""
    word = watch.recv(1024)
    if word:
        time.sleep(GRACE_S)
        os.write(2, f"gradwire: rank {rank} ends, since {word.decode()}\n".encode())
        os._exit(1)


def host_key():
    """The same for processes that share a loopback interface and the files of shared memory."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()}:{os.stat('/proc/self/ns/net').st_ino}:{os.stat('/dev/shm').st_dev}"


# ---- the server ----

class Rank:
    """A connection; until its first line has been read nothing but the socket."""

    def __init__(self, connection):
        self.connection, self.number, self.unread, self.over = connection, None, b"", False

    def say(self, text):
        try:
            self.connection.sendall(text.encode())
        except OSError:
            pass  # it has ended: that is read as the end of its connection


class Server:
    def __init__(self, listener, ranks, token):
        self.listener, self.ranks, self.token = listener, ranks, token
        self.select = selectors.DefaultSelector()
        self.select.register(listener, selectors.EVENT_READ)
        self.select.register(sys.stdin, selectors.EVENT_READ)  # rank 0's process
        self.lines, self.watches, self.hosts = {}, [], {}
        self.values, self.waiting, self.broken = {}, [], False

    def run(self):
        """Until rank 0's process and all connections have ended."""
        while len(self.select.get_map()) > 1:
            for key, _ in self.select.select():
                if key.fileobj is sys.stdin:
                    self.select.unregister(sys.stdin)
                elif key.data is None:
                    connection = self.listener.accept()[0]
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.select.register(connection, selectors.EVENT_READ, Rank(connection))
                else:
                    self.read(key.data)

    def read(self, rank):
        try:
            read = rank.connection.recv(65536)
        except OSError:
            read = b""
        if not read:
            return self.gone(rank)
        *lines, rank.unread = (rank.unread + read).split(b"\n")
        for line in lines:
            if rank.number is None:
                self.greet(rank, line.decode(errors="replace").split())
            else:
                self.answer(rank, dict(word.partition("=")[::2] for word in line.decode().split()))

    def greet(self, rank, words):
        if len(words) != 3 or not secrets.compare_digest(words[0], self.token):
            return self.gone(rank)
        rank.number = int(words[1])
        if words[2] == "watch":
            rank.over = True
            self.watches.append(rank)
            return
        self.lines[rank.number], self.hosts[rank.number] = rank, words[2]
        if len(self.lines) == self.ranks:
            self.values["PMI_process_mapping"] = mapping([self.hosts[i] for i in range(self.ranks)])
            if len(self.values["PMI_process_mapping"]) > LONGEST:
                return self.break_down("the ranks change hosts too often for MPICH: give each host ranks in a row")
            for other in self.lines.values():
                other.say("\n")

    def answer(self, rank, asked):
        command = asked.get("cmd")
        if command in ANSWERS:
            rank.over = rank.over or command == "finalize"
            rank.say(f"cmd={ANSWERS[command].format(ranks=self.ranks)} rc=0\n")
        elif command == "put":
            self.values[asked["key"]] = asked["value"]
            rank.say("cmd=put_result rc=0 msg=success\n")
        elif command == "get" and asked["key"] in self.values:
            rank.say(f"cmd=get_result rc=0 msg=success value={self.values[asked['key']]}\n")
        elif command == "get":
            rank.say("cmd=get_result rc=-1 msg=key_not_found value=unknown\n")
        elif command == "barrier_in":
            self.waiting.append(rank)
            if len(self.waiting) == self.ranks:
                arrived, self.waiting = self.waiting, []
                for other in arrived:
                    other.say("cmd=barrier_out rc=0 msg=success\n")
        elif command == "abort":
            self.break_down(f"rank {rank.number} called MPI_Abort")
            rank.say("cmd= rc=0\n")  # MPICH 4.0 waits for this, or to be killed
        else:  # MPI_Comm_spawn, say
            self.break_down(f"MPI of rank {rank.number} asked its launcher for {command}, which mpiexec alone can do")

    def gone(self, rank):
        self.select.unregister(rank.connection)
        rank.connection.close()
        if rank.number is not None and not rank.over:
            self.break_down(f"rank {rank.number} ended without MPI_Finalize")

    def break_down(self, why):
        if not self.broken:
            self.broken = True
            for watch in self.watches:
                watch.say(why)


def mapping(hosts):
    """Which ranks share a host, as MPICH reads it: blocks of (first host, hosts, ranks on each)."""
    numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    blocks = []
    for host, group in itertools.groupby(hosts):
        number, ranks = numbers[host], len(list(group))
        if blocks and blocks[-1][2] == ranks and blocks[-1][0] + blocks[-1][1] == number:
            blocks[-1][1] += 1
        else:
            blocks.append([number, 1, ranks])
    return "(vector," + ",".join("({},{},{})".format(*block) for block in blocks) + ")"


if __name__ == "__main__":
    Server(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), os.environ["GRADWIRE_PMI_TOKEN"]).run()
