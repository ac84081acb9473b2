/** `gradwire plan --mesh`: how to spread the model over the ranks. What plan.c calls in place of
 *  its own parts. */
#ifndef GW_CLI_PLAN_MESH_H
#define GW_CLI_PLAN_MESH_H

#include "cli/bench/bench.h"
#include "select/layout.h"

/** Rows of plan's option table. */
#define GW_PLAN_MESH_OPTS                                                                          \
    {"mesh",                                                                                       \
     GW_OPT_COMMAS,                                                                                \
     "",                                                                                           \
     0,                                                                                            \
     0,                                                                                            \
     NULL,                                                                                         \
     "auto|DIM=N,..",                                                                              \
     "compare ways to spread the model over the ranks: all meshes, or this one",                   \
     .group = "Meshes"},                                                                           \
        {"timetables", GW_OPT_SPECS,   "1f1b;1f1b:eager=1;gpipe;interleaved;zb",      0, 0,        \
         NULL,         "TIMETABLE;..", "timetables to compare where there are stages"},            \
    {                                                                                              \
        "microbatches", GW_OPT_LIST, "1,2,4,8,16", 1, 4096, NULL, "M,M,..",                        \
            "numbers of microbatches to compare where there are stages",                           \
            .size = (GW_LAYOUT_MICROS + 1) * sizeof(int)                                           \
    }

/** As gw_benchmark has them. */
gw_err gw_plan_mesh_prepare(gw_bench_run *run);
gw_err gw_plan_mesh_measure(gw_bench_run *run, bool *own);
void gw_plan_mesh_report(gw_bench_run *run);
void gw_plan_mesh_release(void);

#endif
