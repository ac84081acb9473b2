"""The charts of a report, one file each, in the order in which they appear.

A chart is a module with TITLE and `build(results)`, which returns a model.Chart; or raises
model.NotShown with the reason where the runs do not hold what it needs. One of TABLES also has a
CAPTION, for a page of kept results."""

ORDER = ["baseline", "effects", "sweep", "scaling", "time_stack", "dimensions",
         "step_times", "ranks", "traffic", "accuracy", "target", "pays",
         "break_even", "final_accuracy", "memory", "order"]
TABLES = {"pays", "break_even"}  # these have no drawing
DETAILS = {"step_times", "ranks", "order"}  # of steps, ranks and runs: paper has them with all details alone
