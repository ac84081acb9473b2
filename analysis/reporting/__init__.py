"""What `analysis/report` and `analysis/compare` are made of: run folders in, figures and pages out.

runs.py finds and reads run folders, model.py holds what was read, stats.py knows the statistics,
charts/ has a file a chart, figure.py draws, page.py lays the report out. Nothing here reads anything
but run folders, and nothing knows how they came about."""
