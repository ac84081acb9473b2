"""The loop: starts the runs in the planned order, waits for them, and records their results."""

import os
import re
import signal
import time
from collections import Counter

import processes
from ablation import journal as j
from ablation import launch, probe
from ablation.busy import Gate
from ablation.progress import Progress, duration, passing
from reporting import ends

DIVERGED = re.compile("(is|are) no longer finite|is larger than exchange and update carry")  # as the program says it


def ending():
    """Signals that end the runner, without ignored ones (nohup(1))."""
    return {number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) != signal.SIG_IGN}


class Interrupted(Exception):
    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Live:
    """A run in progress."""

    def __init__(self, job, planned, record, process, timeout_s):
        self.job, self.planned, self.record, self.process = job, planned, record, process
        self.begun = time.monotonic()
        self.deadline = self.begun + (timeout_s or float("inf"))


class Runner:
    def __init__(self, study, runs, journal, launcher, jobs, retry_failed, when_busy):
        """`runs`: [(index in the planned order, Planned)]."""
        self.gate = Gate(when_busy, launcher, lambda s: self.take(signal.sigtimedwait(self.ending, s)))
        self.study, self.journal, self.launcher, self.jobs = study, journal, launcher, jobs
        self.runs = runs
        self.live = []
        self.news = None  # what is still to be shown; "": that a run has started
        self.progress = Progress(len(runs), jobs)
        self.allowed = {}  # folder -> attempts
        self.records = {}  # folder -> experiment.json
        self.queue = []
        for index, planned in runs:
            record = journal.load(planned)
            again = j.spent(record) if retry_failed and record else 0
            self.allowed[planned.folder] = study.retries + 1 + again
            if j.is_left(record, self.allowed[planned.folder]):
                self.queue.append((index, planned))
            else:
                self.progress.ended(planned, record["state"], record["attempts"][-1]["seconds"])
            if record:
                self.records[planned.folder] = record

    def left(self):
        return [live.planned for live in self.live] + [planned for _, planned in self.queue]

    def left_cells(self):
        """Each once, in the order of the runs."""
        return list({planned.cell.id: planned.cell for planned in self.left()}.values())

    def summary(self, out):
        """The last line: how all runs of this call ended."""
        counts = Counter(ends.of_record(self.records.get(planned.folder)) for _, planned in self.runs)
        return self.progress.summary(out, counts)

    def failed(self):
        """(folder, record) of each that has no result."""
        return [(p.folder, self.records[p.folder]) for _, p in self.runs
                if self.progress.states.get(p.folder) == "failed"]

    def run(self):
        """Signals are blocked and received at safe points, so they never interrupt a record."""
        processes.become_reaper()
        self.ending = ending()
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*self.ending, signal.SIGCHLD})
        try:
            self.admit()
            self.estimate()
            if self.journal.share is None:
                self.progress.announce(self.left())
            while self.queue or self.live:
                while self.queue and len(self.live) < self.jobs:
                    self.take(signal.sigtimedwait(self.ending, 0))
                    self.admit()
                    self.start(*self.queue.pop(0))
                self.show()
                if self.live:
                    self.wait()
            self.show()
        finally:
            processes.end([live.process for live in self.live])
            self.progress.clear()
            while signal.sigtimedwait(self.ending, 0):
                pass  # ignore a second Ctrl-C
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def admit(self):
        """Waits or stops while other processes have the cores that the next run needs; own runs are none."""
        if not self.live:
            self.gate.admit(self.queue[0][1].cell, self.mask)

    def estimate(self):
        """If no run tells how long they take, and no task of a job array asks."""
        if self.progress.seconds or self.journal.share is not None:
            return
        for planned in probe.cells([planned for _, planned in self.queue], self.study.cells):
            self.journal.check()
            passing(f"probing {planned.cell.id}")
            guess = probe.seconds(planned, self.journal.out, self.launcher, self.probe)
            if guess is not None:
                self.progress.guesses[planned.cell.id] = guess

    def probe(self, words, cell, folder):
        """Seconds that the command took; None: it failed."""
        begun, process = time.monotonic(), None
        try:
            self.launcher.prepare(cell)
            process = launch.start(words, cell.environment, self.launcher.directory,
                                   os.path.join(folder, j.LOG), self.mask)
            while process.poll() is None:
                left = begun + probe.TIMEOUT_S - time.monotonic()
                if left <= 0:
                    return None
                self.take(signal.sigtimedwait({*self.ending, signal.SIGCHLD}, left))
            return None if process.returncode else time.monotonic() - begun
        except (j.BadInput, OSError):  # the run itself will tell
            return None
        finally:
            if process:
                processes.end([process])
                processes.sweep([])

    def show(self):
        if self.news is not None:
            self.progress.show(self.left(), self.news, [live.planned.folder for live in self.live])
        self.news = None

    def start(self, index, planned):
        folder = self.journal.folder(planned)
        record = self.records.get(planned.folder) or j.new_record(self.study, planned, index)
        for attempt in record["attempts"]:
            if attempt.get("interrupted") is None:  # its runner was killed
                attempt["interrupted"] = True
        job = min(set(range(self.jobs)) - {live.job for live in self.live})
        words = self.launcher.command(planned, folder, job)
        environment = self.launcher.environment(planned, folder)
        record.update(state="running", attempts=[*record["attempts"], j.new_attempt()],
                      command=words, environment=environment,
                      launcher="testbed" if planned.cell.testbed else self.launcher.kind,
                      jobs=self.jobs, testbed=planned.cell.testbed)
        self.journal.begin(planned, record)
        self.records[planned.folder] = record
        try:
            self.launcher.prepare(planned.cell, job)
            process = launch.start(words, environment, self.launcher.directory,
                                   os.path.join(folder, j.LOG), self.mask)
        except (j.BadInput, OSError) as error:  # the testbed, or a program that is being rebuilt
            record["attempts"][-1].update(seconds=0.0, interrupted=False, message=str(error),
                                          cause=ends.plain(str(error)))
            self.settle(planned, record, "failed")
            return
        self.live.append(Live(job, planned, record, process, self.study.timeout_s))
        self.news = self.news or ""

    def wait(self):
        """Waits until a process ends, a run times out, or a signal comes."""
        until = min(live.deadline for live in self.live) - time.monotonic()
        self.take(signal.sigtimedwait({*self.ending, signal.SIGCHLD},
                                      min(max(until, 0), 3600)))
        for live in list(self.live):
            if live.process.poll() is not None:
                self.finish(live)
            elif time.monotonic() >= live.deadline:
                processes.end([live.process])
                self.finish(live, timed_out=True)

    def take(self, told):
        """On a signal to end, ends the live runs and records them as interrupted."""
        if told is None or told.si_signo == signal.SIGCHLD:
            return
        gone = [live for live in self.live if live.process.poll() is not None]
        processes.end([live.process for live in self.live])
        for live in list(self.live):
            self.finish(live, interrupted=live not in gone)
        raise Interrupted(told.si_signo)

    def finish(self, live, timed_out=False, interrupted=False):
        """Records a run that has ended; one that was done just before it was ended is done."""
        self.live.remove(live)
        processes.sweep([other.process for other in self.live])
        self.journal.check()
        text = launch.read_log(self.journal.folder(live.planned))
        status = live.process.returncode
        alone = self.journal.alone(live.planned)
        complete = status == 0 and self.journal.has_result(live.planned) and not alone
        state = ("done" if complete else "interrupted" if interrupted else
                 "diverged" if status == 1 and DIVERGED.search(text) else "failed")
        attempt = live.record["attempts"][-1]
        attempt.update(seconds=round(time.monotonic() - live.begun, 3),
                       status=status if status >= 0 else None,
                       signal=launch.died_of(status, text), timed_out=timed_out and not complete,
                       interrupted=state == "interrupted", message=launch.last_words(text),
                       cause=ends.cause_of(text))
        if status == 0 and state == "failed" and not timed_out:
            attempt["cause"] = attempt["message"] = (
                f"the launcher started {live.planned.cell.ranks} programs of 1 rank: it does not "
                "fit the MPI library (docs/clusters.md)" if alone else
                "ended with status 0, but wrote no run.json")
        self.settle(live.planned, live.record, state)

    def settle(self, planned, record, state):
        record["state"] = state
        self.journal.save(planned, record)
        if state == "interrupted":
            self.queue.insert(0, (record["planned"], planned))
        else:
            self.tell(planned, record)

    def tell(self, planned, record):
        state, attempt = record["state"], record["attempts"][-1]
        event = f"{planned.folder} {state} in {duration(attempt['seconds'])}"
        if state == "failed":
            again = j.spent(record) < self.allowed[planned.folder]
            self.progress.note(f"{planned.folder}: {ends.described(record)}"
                               + ("; tried again" if again else ""))
            if again:
                self.queue.insert(0, (record["planned"], planned))
                return
        self.progress.ended(planned, state, attempt["seconds"])
        self.news = f"{self.news}, {event}" if self.news else event
