/* A run of a benchmark: MPI, the JSON file, the order of its parts. */
#include "cli/bench/bench_grid.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/version.h"
#include "cli/cli.h"
#include "folder/history.h"
#include "machine/busy.h"
#include "prof/clock.h"

#include <string.h>

typedef struct job {
    const gw_benchmark *bench;
    gw_bench_run run;
    gw_busy_watch watch; /* what else the machines do, until the benchmark begins and during it: */
    gw_busy before, during;
} job;

static void bench_say_busy(const job *j, const char *when, const gw_busy *b) {
    char text[GW_BUSY_TEXT];
    gw_busy_text(b, text, sizeof text);
    if (j->run.place.rank == 0 && gw_busy_warns(b))
        printf("warning: %s this benchmark %s: its times are not to be trusted\n", when, text);
}

/* Report, and write the file, if there is one; rank 0. */
static gw_err bench_finish(job *j, gw_file *file) {
    const gw_bench_place *p = &j->run.place;
    char utc[GW_UTC];
    gw_host host;
    if (p->rank != 0)
        return GW_OK;
    if (j->bench->report)
        j->bench->report(&j->run);
    bench_say_busy(j, "during", &j->during);
    fflush(stdout);
    if (!file)
        return GW_OK;
    gw_host_facts(&host);
    gw_utc_now(utc);
    json_t *options = json_object();
    for (const gw_opt *o = j->bench->opts; o->name; o++) {
        const char *text = gw_args_text(j->run.args, o->name);
        bool flag = o->type == GW_OPT_FLAG;
        json_object_set_new(options, o->name,
                            flag   ? json_boolean(gw_args_flag(j->run.args, o->name))
                            : text ? json_string(text)
                                   : json_null());
    }
    json_t *all = gw_json_object(
        "schema:i benchmark:s version:s finished_utc:s options:o ranks:i nodes:i threads:i "
        "oversubscribed:b busy:o mpi_library:s host:s cpu:s results:o",
        1, j->bench->name, GW_VERSION " (" GW_COMMIT ")", utc, options, p->ranks, p->nodes,
        p->threads, p->oversubscribed, gw_busy_run_json(&j->before, &j->during), p->mpi, host.name,
        host.cpu_model, json_incref(j->run.results));
    json_object_update(all, j->run.facts);
    return gw_json_commit(file, all, JSON_INDENT(2), "the figures");
}
static gw_err bench_body(void *ctx, MPI_Comm comm, bool *own) {
    job *j = ctx;
    gw_file *file = NULL;
    gw_bench_run *r = &j->run;
    GW_TRY(gw_bench_place_open(&r->place, comm, r->threads));
    if (!j->bench->denormals)
        gw_flush_denormals();
    gw_clock_start();
    if (j->bench->alone && r->place.ranks > 1)
        return gw_fail(GW_ERR_USAGE,
                       "bench: %s runs on one rank, and here are %d: start it without mpiexec",
                       j->bench->name, r->place.ranks);
    GW_TRY(gw_busy_open(&j->watch, &r->place.node, comm));
    GW_TRY(gw_busy_look(&j->watch, 0, &j->before));
    bench_say_busy(j, "before", &j->before);
    const char *path = j->run.place.rank == 0 ? gw_args_text(j->run.args, "json") : NULL;
    GW_TRY(gw_agree(comm, path ? gw_file_create_at(&file, path) : GW_OK)); /* told at once */
    gw_err e = j->bench->measure(&j->run, own);
    GW_THEN(e, gw_busy_look(&j->watch, 0, &j->during));
    if (e == GW_OK)
        e = gw_agree(comm, bench_finish(j, file));
    else
        gw_file_abandon(file);
    if (!*own)
        gw_busy_close(&j->watch);
    if (j->bench->close && !*own)
        j->bench->close();
    if (j->bench->grid && !*own)
        gw_grid_close(j->bench->grid);
    if (e == GW_OK && j->bench->grid)
        e = gw_grid_verdict(j->bench->grid);
    return e == GW_OK && j->bench->verdict ? j->bench->verdict(&j->run) : e;
}

int gw_bench_main(const gw_benchmark *b, const char *owner, int argc, char **argv) {
    gw_args *args = NULL;
    gw_err e = gw_args_new(&args, b->opts);
    if (e != GW_OK)
        return gw_cli_refuse(e);
    e = gw_args_argv(args, owner, argc, argv, NULL);
    GW_THEN(e, gw_args_check(args, b->rules, owner));
    if (gw_args_given(args, "json"))
        GW_THEN(e, gw_cli_utf8(owner, "json", argc, argv));
    job j = {b,
             {.args = args,
              .level = MPI_THREAD_FUNNELED,
              .threads = gw_args_has(args, "threads") ? (int)gw_args_int(args, "threads") : 1,
              .results = json_array(),
              .facts = json_object()}};
    if (b->config)
        gw_args_fill(args, b->config);
    GW_THEN(e, b->prepare ? b->prepare(&j.run) : GW_OK);
    gw_cli_told told = {
        .command = owner, .part = strcmp(owner, b->name) ? b->name : NULL, .args = args};
    int status = gw_cli_parallel(&told, j.run.level, e, bench_body, &j);
    if (b->release)
        b->release();
    if (b->grid)
        gw_grid_free(b->grid);
    json_decref(j.run.results);
    json_decref(j.run.facts);
    gw_args_free(args);
    return status;
}
