/** Rows of option tables that all who write a run's folder have in common. TO(member), which says
 *  where a value goes, is the table's own. */
#ifndef GW_CONFIG_OPTS_H
#define GW_CONFIG_OPTS_H

#define GW_RUN_OPT_SEED                                                                            \
    {                                                                                              \
        "seed", GW_OPT_INT, "1", 0, 0x1p52, NULL, "N",                                             \
            "seed of parameters, sample order and codecs", TO(run.seed)                            \
    }
#define GW_RUN_OPT_THREADS                                                                         \
    { "threads", GW_OPT_INT, "1", 1, 4096, NULL, "N", "OpenMP threads per rank", TO(run.threads) }
#define GW_RUN_OPT_OPTIMIZER(STANDARD)                                                             \
    {                                                                                              \
        "optimizer", GW_OPT_SPEC, STANDARD, 0, 0, NULL, "RULE",                                    \
            "update rule: name[:option=value,..] or path to a plugin", TO(optimizer)               \
    }
#define GW_RUN_OPT_WEIGHT_DECAY                                                                    \
    { "weight-decay", GW_OPT_REAL, "0", 0, 0.9999, NULL, "X", "weight decay (sgd: an L2 penalty)" }
#define GW_RUN_OPT_MOMENTUM                                                                        \
    { "momentum", GW_OPT_REAL, "0", 0, 0.9999, NULL, "X", "momentum of RULE", TO(run.momentum) }
#define GW_RUN_OPT_OUT                                                                             \
    {                                                                                              \
        "out", GW_OPT_PATH, NULL, 0, 0, NULL, "DIR", "write the run folder here", TO(run.out),     \
            .group = "Run folder and checkpoints"                                                  \
    }
#define GW_RUN_OPT_OVERWRITE                                                                       \
    {                                                                                              \
        "overwrite", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "replace the run in DIR",                \
            TO(run.overwrite)                                                                      \
    }
#define GW_RUN_OPT_VERIFY                                                                          \
    {                                                                                              \
        "verify-every", GW_OPT_INT, "0", 0, 1e12, NULL, "STEPS",                                   \
            "also compare the ranks' parameters every STEPS steps, not only after each "           \
            "epoch (0: no)",                                                                       \
            TO(run.verify_every)                                                                   \
    }
#define GW_RUN_OPT_HANG                                                                            \
    {                                                                                              \
        "hang-timeout", GW_OPT_TIME, "600", 0, 1e9, NULL, NULL,                                    \
            "without progress for this time, every rank reports where it is stuck and the job "    \
            "ends (0: never)",                                                                     \
            TO(run.hang_timeout_s), .group = "Faults"                                              \
    }
#define GW_RUN_OPT_TRACE                                                                           \
    {                                                                                              \
        "trace", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,                                              \
            "write DIR/trace.json (Chrome trace events)", TO(run.trace), .group = "Measurement"    \
    }
#define GW_RUN_OPT_LOG                                                                             \
    {                                                                                              \
        "log", GW_OPT_TEXT, NULL, 0, 0, NULL, "json:FILE",                                         \
            "write live metrics, one line per step", TO(run.log)                                   \
    }
#define GW_RUN_OPT_LOG_EVERY                                                                       \
    {                                                                                              \
        "log-every", GW_OPT_INT, "1", 1, 1e9, NULL, "STEPS",                                       \
            "--log writes means over this many steps", TO(run.log_every)                           \
    }
#define GW_RUN_OPT_COLLECTIVES                                                                     \
    {                                                                                              \
        "collectives", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,                                        \
            "write DIR/collectives.csv: one row per rank and exchange", TO(run.collectives)        \
    }
#define GW_RUN_OPT_STATS                                                                           \
    {                                                                                              \
        "compress-stats", GW_OPT_INT, "0", 0, 1e9, NULL, "STEPS",                                  \
            "every STEPS steps, compare the gradient with the exact one: "                         \
            "DIR/codec.csv (0: never)",                                                            \
            TO(run.compress_stats)                                                                 \
    }
#define GW_RUN_OPT_PROFILE                                                                         \
    {                                                                                              \
        "profile", GW_OPT_CHOICE, "full", 0, 0, "off|timers|full", NULL,                           \
            "measure wall times only; also phases, MPI and exchanges; also counters and memory",   \
            TO(run.profile)                                                                        \
    }

#endif
