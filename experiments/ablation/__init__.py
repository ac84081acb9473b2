"""What `experiments/run` is made of: a spec in, run folders out.

spec.py reads a spec and lines.py knows its lines; design.py makes cells of it, command.py their
command lines, select.py takes some of them, check.py refuses what cannot run before anything does,
doubts.py warns of what a study states and can never decide, dryrun.py prints the plan. journal.py keeps what has been done, launch.py starts a run's processes,
runner.py is the loop, progress.py tells how far it is, slurm.py writes it as a job array."""
