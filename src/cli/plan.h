/** What `gradwire plan` does in place of comparing codecs here; members as gw_benchmark has. */
#ifndef GW_CLI_PLAN_H
#define GW_CLI_PLAN_H

#include "cli/bench/bench.h"

/** --mesh: how to spread the model over the ranks. */
gw_err gw_plan_mesh_prepare(gw_bench_run *run);
gw_err gw_plan_mesh_measure(gw_bench_run *run, bool *own);
void gw_plan_mesh_report(gw_bench_run *run);
void gw_plan_mesh_release(void);

/** --ranks: does compression pay on so many ranks of a network? Strategies, algorithms and codecs
 *  are played (cli/simulate), in one process; with --verify real ranks measure the fastest. */
gw_err gw_plan_scale_prepare(gw_bench_run *run);
gw_err gw_plan_scale_measure(gw_bench_run *run, bool *own);
void gw_plan_scale_report(gw_bench_run *run);
void gw_plan_scale_release(void);

#endif
