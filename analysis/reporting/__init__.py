"""What `analysis/report` and `analysis/compare` are made of: run folders in, figures and pages out.

runs.py finds and reads run folders (loose.py those of no study, batches.py the rows, shape.py what
must be in them), model.py holds what was read, stats.py knows the statistics, verdicts.py says what
follows; charts/ has a file a chart, figure.py draws, page.py lays the report out of markup.py's
pieces, summary.py writes the table. Nothing here reads anything but run folders, and nothing knows
how they came about."""
