"""What `experiments/run` is made of: a spec in, run folders out.

spec.py reads a spec and knows its lines, design.py makes cells of it, command.py their command
lines, check.py refuses what cannot run before anything does; journal.py keeps what has been done,
launch.py starts and ends processes, runner.py is the loop, slurm.py writes it as a job array."""
