"""What breaks a rule of test_layout.py today. The lists only shrink: what is not listed must keep the rule, and what is
listed and keeps it has to go from its list."""

# Modules that include each other, and files that call each other.
CIRCLES = {
    "mesh/pipeline, mesh/pipeline_parts",
}

# (header that clients of the library come by, header of the library's inside that it shows them).
SHOWN = {
    ("api/inside.h", "comm/strategy.h"),
    ("api/inside.h", "run/codec_stats.h"),
    ("api/inside.h", "run/unmet.h"),
}

# (file, struct): the most fields that it may have.
FIELDS = {}

# (file, strategy that it names).
STRATEGIES = {
    ("src/cli/bench/bench_codec.c", "powersgd"),
}

# Words that are a strategy's name, too, and mean something else there.
OTHER_WORDS = {
    ("python/gradwire/torch/model.py", "sparse"),  # gradients of PyTorch
    ("src/checkpoint/facts.c", "sharded"),  # --data-layout
    ("src/cli/bench/bench_allreduce.c", "allreduce"),  # the collective
    ("src/cli/list.c", "sparse"),  # codecs
    ("src/cli/plan.c", "local"),  # a column
    ("src/predict/bound.c", "delayed"),  # modes of a bound
    ("src/predict/bound.c", "local"),  # a key of JSON
    ("src/predict/bound.c", "sharded"),  # modes of a bound
    ("src/predict/chooser.c", "local"),  # a key of JSON
}
