"""The parts of `analysis/report` and `analysis/compare`, which read only run folders.

runs.py finds and reads run folders (loose.py: runs of no study, batches.py: rows, shape.py: the
required types) into model.py's classes. stats.py and fits.py compute, verdicts.py writes sentences,
sidebyside.py compares two results. charts/ has one file per chart, figure.py renders them, page.py
composes the report of markup.py's elements, summary.py writes the table."""
