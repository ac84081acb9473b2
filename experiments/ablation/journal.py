"""The state of a study on disk, which survives the runner at any moment: study.json, an
experiment.json in each run's folder, and the lock that keeps a second runner out."""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import socket

from reporting import shape
from tool import BadInput

SCHEMA = 1
STUDY, RUN, LOCK, LOG = "study.json", "experiment.json", ".lock", "log.txt"
TRIES = 100


def now():
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_json(path, content):
    """Writes the file whole or not at all, even if the machine crashes."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.new")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)  # of the new name
    finally:
        os.close(directory)


def read_json(path):
    """A mapping; None if the file has none or cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def is_current(fd, path):
    """Whether `path` still names the open file: its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def take_lock(path, shared=False):
    """A descriptor that holds the lock until it is closed or this process ends; children do not
    inherit it. FileNotFoundError: the folder or the file was removed meanwhile."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 200, 0).decode(errors="replace").strip() or "another runner"
        os.close(fd)
        raise BadInput(f"{os.path.dirname(path)}: {holder} is at work here: wait for it or end it, "
                      "or name another folder by --out") from error
    except OSError as error:
        os.close(fd)
        raise BadInput(f"{path}: this file system has no locks ({error.strerror}): name a folder on "
                      "another file system by --out") from error
    if not is_current(fd, path):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return fd


class Lost(Exception):
    """The study's folder is no longer what was locked: another study may be there by now."""


class Journal:
    """One results folder. Only the holder of its lock writes, and looks before it does: who removes
    the folder meanwhile, and begins another study there, meets nothing of this one."""

    def __init__(self, out):
        self.out = out
        self.share = None
        self.own = None  # the lock's descriptor
        self.beside = ()  # names in the folder that may be there before study.json

    def check(self):
        """Raises Lost."""
        if self.own is None or is_current(self.own, os.path.join(self.out, LOCK)):
            return
        now_at = os.readlink(f"/proc/self/fd/{self.own}")
        what = ("was removed while its runs were made: their results are lost"
                if now_at.endswith(" (deleted)") else
                f"was moved while its runs were made: what there is of them is in {os.path.dirname(now_at)}")
        raise Lost(f"{self.out}: this folder, or its {LOCK}, {what}")

    def write(self, path, content):
        self.check()
        write_json(path, content)

    @contextlib.contextmanager
    def locked(self, share=None):
        """Locks the folder for this process; with `share`, a range of the plan's places, only these
        runs, since other tasks of a job array do the others."""
        self.share = share
        locks = []
        try:
            made = self.lock(locks)
            self.own = locks[0]
            try:
                yield self
            finally:
                self.own = None
                if made:
                    self.unmake(locks[0])
        finally:
            for lock in locks:
                os.close(lock)

    def lock(self, locks):
        """Takes the locks; whether this process made the folder."""
        made = False
        try:
            for left in reversed(range(TRIES)):
                os.makedirs(os.path.dirname(os.path.abspath(self.out)), exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self.out)
                    made = True
                try:
                    locks.append(take_lock(os.path.join(self.out, LOCK), self.share is not None))
                    break
                except FileNotFoundError:  # another runner removed the folder meanwhile
                    if left == 0:
                        raise
            if self.share is not None:
                locks.append(take_lock(os.path.join(self.out, f"{LOCK}-{self.share.start}")))
        except OSError as error:
            raise BadInput(f"{self.out}: {error.strerror}: name another folder by --out") from error
        return made

    def unmake(self, lock):
        """Removes a folder that was made and stayed empty, unless another process has it by now."""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # where it is shared, too
        except BlockingIOError:
            return
        own = is_current(lock, os.path.join(self.out, LOCK))
        names = os.listdir(self.out) if own else [STUDY]
        if not all(name.startswith(LOCK) for name in names):
            return
        for name in names:
            os.unlink(os.path.join(self.out, name))
        with contextlib.suppress(OSError):  # another runner has just made its lock in it
            os.rmdir(self.out)

    def study(self):
        """study.json; None if there is none; BadInput if it is unusable."""
        path = os.path.join(self.out, STUDY)
        if not os.path.lexists(path):
            return None
        content = read_json(path) or {}
        if content.get("schema", SCHEMA) != SCHEMA:
            raise BadInput(f"{self.out}: {STUDY} has schema {content['schema']}, not {SCHEMA}: name "
                          "another folder by --out")
        try:
            shape.check(content, {**shape.STUDY, "directory?": shape.TEXT}, STUDY)
        except shape.Bad as error:
            raise BadInput(f"{path}: is damaged: restore it, or name another folder by --out "
                           f"({error})") from error
        return content

    def order(self, study, planned, resume):
        """The runs in order: as planned, or as in the folder's study if it is the same."""
        old = self.study()
        if old is None:
            self.refuse_foreign()
            return planned
        self.compare(old, study, resume)
        by_folder = {p.folder: p for p in planned}
        folders = [run["folder"] for run in old["runs"]]
        if set(folders) != set(by_folder):
            raise BadInput(f"{self.out}: its runs were named by another version of experiments/run: "
                          "resume with that version, or name another folder by --out")
        return [by_folder[folder] for folder in folders]

    def create(self, study, planned, facts):
        """Writes study.json: the spec, the runs in their planned order, and `facts`."""
        spec = {"file": os.path.abspath(study.path), "sha256": study.sha256, "text": study.text}
        self.write(os.path.join(self.out, STUDY), {
            "schema": SCHEMA, "name": study.name, "spec": spec,
            "claim": study.claim, "source": study.source, "short": study.short,
            "design": study.design, "factors": study.factors, "baseline": study.baseline,
            "report": study.report, "claims": study.claims,
            "blocks": blocks_of(study),
            "cells": [{"id": c.id, "levels": c.levels, "ranks": c.ranks, "testbed": c.testbed}
                      for c in study.cells],
            "runs": runs_of(planned), **({"trials": True} if study.trials else {}),
            "order_seed": study.order_seed, "retries": study.retries, "timeout_s": study.timeout_s,
            "created_utc": now(), **facts, "directory": self.directory()})

    def directory(self):
        """The base of relative paths in a spec's options: the folder in which the study was
        begun."""
        path = (self.study() or {}).get("directory") or os.getcwd()
        if not os.path.isdir(path):
            raise BadInput(f"{path}: the study was begun in this folder, and relative paths of its "
                          "spec start there; make it again, or name another folder by --out")
        return path

    def refuse_foreign(self):
        if not os.path.exists(self.out):
            return
        if self.share is not None:
            raise BadInput(f"{self.out}: --only-run: there is no study here: let --slurm begin it")
        foreign = sorted(name for name in os.listdir(self.out)  # a killed runner leaves the others
                         if not name.startswith(LOCK) and name not in (f".{STUDY}.new", *self.beside))
        if foreign:
            raise BadInput(f"{self.out}: holds other things than a study ({foreign[0]}): name "
                          "another folder by --out")

    def compare(self, old, study, resume):
        if not resume:
            raise BadInput(f"{self.out}: holds the study {old['name']} already: give --resume to "
                          "resume it, or name another folder by --out")
        if old["spec"]["sha256"] != study.sha256:
            raise BadInput(f"{self.out}: was begun with another text of the spec ({old['name']}, "
                          f"kept in {STUDY}) than {study.path} has now: restore it, or name "
                          "another folder by --out")
        if old["short"] != study.short:
            raise BadInput(f"{self.out}: was begun {'with' if old['short'] else 'without'} --short: "
                          f"resume it {'with' if old['short'] else 'without'}, or name another "
                          "folder by --out")

        ranks = {cell.id: cell.ranks for cell in study.cells}
        for cell in old["cells"]:
            if cell["ranks"] != ranks.get(cell["id"], cell["ranks"]):  # ranks: auto
                raise BadInput(f"{self.out}: {cell['id']} was begun with {cell['ranks']} ranks, and on these CPUs has "
                               f"{ranks[cell['id']]}: resume where it began, or name another folder by --out")

    def folder(self, planned):
        return os.path.join(self.out, planned.folder)

    def load(self, planned):
        """The run's experiment.json; None if it never began or the file is unusable."""
        record = read_json(os.path.join(self.folder(planned), RUN))
        if not record or not is_record(record, planned):
            return None
        if record["state"] == "done" and not self.has_result(planned):
            return None
        return record

    def has_result(self, planned):
        """Whether it has a run.json of a run that no signal cut short: MPICH's mpiexec may report
        status 0 after it has forwarded a signal."""
        run = read_json(os.path.join(self.folder(planned), "run.json"))
        results = (run or {}).get("results")
        return isinstance(results, dict) and results.get("stopped_by") not in shape.CUT_SHORT

    def alone(self, planned):
        """Whether its run.json is that of a rank that saw none of the others."""
        run = read_json(os.path.join(self.folder(planned), "run.json")) or {}
        machine = run.get("machine")
        return (planned.cell.ranks > 1 and isinstance(machine, dict) and machine.get("ranks") == 1)

    def save(self, planned, record):
        self.write(os.path.join(self.folder(planned), RUN), record)

    def begin(self, planned, record):
        """Prepares the folder for a new attempt: removes results of an earlier one."""
        folder = self.folder(planned)
        self.check()
        os.makedirs(folder, exist_ok=True)
        for name in ("run.json", LOG):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
        self.save(planned, record)


def blocks_of(study):
    return [{"repetition": repetition, "seed": seed} for repetition, seed in study.blocks]


def runs_of(planned):
    return [{"folder": p.folder, "cell": p.cell.id, "block": p.block} for p in planned]


def is_record(content, planned):
    """Whether it is this run's, and has what resuming requires."""
    own = {"schema": SCHEMA, "cell": planned.cell.id, "repetition": planned.repetition,
           "seed": planned.seed, "block": planned.block}
    try:
        shape.check(content, shape.EXPERIMENT, RUN)
    except shape.Bad:
        return False
    return (all(content.get(key) == value for key, value in own.items())
            and (content["state"] in ("running", "interrupted") or spent(content) > 0))


def new_record(study, planned, index):
    return {"schema": SCHEMA, "study": study.name, "cell": planned.cell.id,
            "levels": planned.cell.levels, "baseline": planned.cell.baseline,
            "repetition": planned.repetition, "seed": planned.seed, "block": planned.block,
            "planned": index, "state": "running", "attempts": []}


def new_attempt():
    """`interrupted` is None until the attempt ends, and stays None if its runner is killed."""
    return {"started_utc": now(), "seconds": None, "status": None, "signal": None,
            "timed_out": False, "interrupted": None, "message": ""}


def spent(record):
    """The number of attempts, without those that were interrupted or whose runner was killed."""
    return sum(attempt.get("interrupted") is False for attempt in record["attempts"])


def is_left(record, attempts):
    """Whether the run is still to be done, with so many attempts allowed."""
    if record is None or record["state"] in ("running", "interrupted"):
        return True
    return record["state"] == "failed" and spent(record) < attempts
