"""The parts of `gradwire report`, `compare`, `export`, `show` and `table`, and of the Python package
gradwire.analysis, which has a link to this folder. They read only run folders, and import each other
relatively.

shape.py says what must be in the files of a run, info.py looks things up in run.json, steps.py reads
the rows, folders.py finds runs, ends.py says how a run ended: these need only the standard library,
as does base.py, what all may use. runs.py finds and reads run folders (loose.py: runs of no study,
batches.py: means of rows) into the classes of model.py. stats.py and fits.py compute, verdicts.py
writes sentences, sidebyside.py compares two results. charts/ has one file per chart, figure.py
renders them (panels.py, rows.py, curves.py: what several share), answer.py says what a report's first
screen says (expect.py: what a study expects; failed.py: what failed), efficiency.py how far runs are
from what they could reach, page.py composes the report of
the elements of markup.py and page.js, racks.py counts the bytes between racks, summary.py writes the
table, perrun.py that of all runs, paper.py what a paper needs; sheet.py writes all CSV files.
claims.py says what a claim is and judge.py judges it (kept.py: by the runs.csv that was kept),
beyond.py finds what is faster than its workers account for."""
