/* run.json. */
#include "run/report.h"
#include "api/handle.h"
#include "api/inside.h"
#include "base/json.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>

/* The program's command line, one line of UTF-8; "": the kernel does not tell. */
static void report_command(char *out, size_t room) {
    FILE *in = fopen("/proc/self/cmdline", "r");
    size_t len = in ? fread(out, 1, room - 1, in) : 0;
    if (in)
        fclose(in);
    for (size_t i = 0; i + 1 < len; i++)
        if (out[i] == '\0')
            out[i] = ' ';
    out[len] = '\0';
    gw_text_line(out);
}

static json_t *report_tensors(const gradwire *g) {
    json_t *all = json_array();
    for (int t = 0; t < g->arena.n_tensors; t++)
        json_array_append_new(all,
                              gw_json_object("name:s group:i floats:I rows:I",
                                             g->arena.tensor[t].name, g->arena.tensor[t].group,
                                             g->arena.tensor[t].span.n, g->arena.tensor[t].rows));
    return all;
}

void gw_inside_keep(gradwire *g, json_t **run) {
    *run = NULL;
    g->files.keep = run;
}

gw_err gw_files_report(const gradwire *g, const gw_guard_total *nan, uint64_t wire_bytes) {
    const gw_files *f = &g->files;
    const gw_recorder *r = &f->rec;
    bool ordered = g->session->mix.algo->ops->caps & GW_ALGO_ORDERED;
    char command[4096];
    json_t *run;
    report_command(command, sizeof command);
    if (r->of.out)
        GW_TRY(gw_report_choices(r->of.out, g->session));
    gw_recorder_report of = {
        .program = "library",
        .command = command,
        .started_utc = r->start_utc,
        .stopped_by = "close",
        .args = g->words.args,
        .seed = g->words.run.seed,
        .parameters = g->arena.n,
        .wire_bytes = wire_bytes,
        .steps = g->batch.step,
        .node = g->node,
        .workers = g->ranks - g->session->strategy.plan.servers,
        .threads = g->words.run.threads,
        .helpers = g->session->strategy.plan.helpers,
        .oversubscribed = g->oversubscribed,
        .dimensions = json_null(),
        .bubble_s = NAN,
        .sources = {"measured: exclusive timers, as the program names its phases", "absent",
                    ordered ? "modelled: what the bandwidth-optimal collective sends"
                            : "measured: bytes handed to MPI",
                    "measured: the process's peak"},
        .comm = gw_report_comm(g->session, r->codec_rows, r->warning),
        .more = gw_json_object("tensors:o others:i", report_tensors(g), g->others),
        .machine = json_object(),
        .results = gw_json_object("checks:o",
                                  gw_json_object("replicas:I replicas_s:f nan:o", f->comparisons,
                                                 f->compare_s,
                                                 gw_guard_json(nan, g->ranks, g->arena.names)))};
    GW_TRY(gw_recorder_json(r, &of, &run));
    if (f->keep)
        *f->keep = json_incref(run);
    if (r->of.out)
        return gw_runfolder_write(r->of.out, run);
    json_decref(run);
    return GW_OK;
}
