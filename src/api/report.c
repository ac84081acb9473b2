/* run.json. */
#include "run/report.h"
#include "api/handle.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "folder/report.h"
#include "folder/runfolder.h"
#include "prof/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static json_t *report_comm(const gradwire *g) {
    return gw_report_comm(g->session, g->files.codec_rows, g->files.warning);
}

static json_t *report_machine(const gradwire *g, json_t *hosts) {
    gw_host h;
    gw_host_facts(&h);
    return gw_json_object(
        "hosts:o cpu:s cpus_online:i cpus_usable:i cores_usable:i memory_bytes:I ranks:i workers:i "
        "nodes:i ranks_on_this_node:i threads_per_rank:i helper_threads_per_rank:i "
        "oversubscribed:b busy:o clock:s",
        json_incref(hosts), h.cpu_model, h.cpus_online, h.cpus_usable, h.cores_usable, h.memory,
        g->ranks, g->ranks - gw_session_servers(g->session), g->node.nodes, g->node.ranks,
        g->words.threads, gw_session_helpers(g->session), g->oversubscribed,
        gw_busy_run_json(NULL, &g->files.busy), gw_clock_name());
}

static json_t *report_sources(const gradwire *g) {
    static const char form[] =
        "phases:s waiting_s:s hidden_s:s memory_s:s wire_bytes:s peak_bytes:s";
    const char *resident = "measured: the process's peak";
    if (g->words.profile == GW_PROFILE_OFF)
        return gw_json_object(form, "absent", "absent", "absent", "absent", "absent", resident);
    bool mpi = g->session->mix.algo->ops->caps & GW_ALGO_ORDERED;
    return gw_json_object(form, "measured: exclusive timers, as the program names its phases",
                          "measured: blocked before the last rank's arrival, on a common clock",
                          "upper bound: computation while a message was in flight", "absent",
                          mpi ? "modelled: what the bandwidth-optimal collective sends"
                              : "measured: bytes handed to MPI",
                          resident);
}

static json_t *report_checks(const gradwire *g, const gw_total *total) {
    const gw_files *f = &g->files;
    return gw_json_object("replicas:I replicas_s:f nan:o", f->comparisons, f->compare_s,
                          gw_guard_json(&total->nan, g->ranks, g->names));
}

static json_t *report_results(gradwire *g, const gw_total *total) {
    const gw_epoch_row *last = &g->files.last;
    gw_straggler straggler = gw_ranks_straggler(total->by_rank, g->ranks);
    gw_report_steps steps = {
        .summary = &total->summary, .dimensions = json_null(), .bubble_s = NAN};
    char hash[16];
    json_t *peak, *sum;
    snprintf(hash, sizeof hash, "%08x", last->replica_hash);
    gw_ranks_memory_json(total->by_rank, g->ranks, &peak, &sum);
    json_t *results = gw_json_object(
        "steps:I stopped_by:s train_loss:f validation_loss:f validation_accuracy:f test_loss:f "
        "test_accuracy:f elapsed_s:f train_s:f wire_bytes:u traffic:o summary:o peak_bytes:o "
        "peak_sum_bytes:o ranks:o straggler:o exchanges_dropped:I checks:o",
        g->step, "close", last->train_loss, NAN, NAN, last->test_loss, last->test_accuracy,
        gw_ledger_now() - g->files.zero_s, g->files.train_s, total->wire_bytes,
        gw_report_traffic(g->words.profile, &total->traffic), gw_report_summary(&steps), peak, sum,
        gw_ranks_json(total->by_rank, g->ranks), gw_report_straggler(&straggler), total->dropped,
        report_checks(g, total));
    return last->epoch > 0 ? gw_json_add(results, "replica_hash:s", hash) : results;
}

static json_t *report_tensors(const gradwire *g) {
    json_t *all = json_array();
    for (int t = 0; t < g->n_tensors; t++)
        json_array_append_new(all, gw_json_object("name:s group:i floats:I rows:I",
                                                  g->tensor[t].name, g->tensor[t].group,
                                                  g->tensor[t].span.n, g->tensor[t].rows));
    return all;
}

gw_err gw_files_report(gradwire *g, gw_total *total) {
    char command[4096];
    report_command(command, sizeof command);
    GW_TRY(gw_report_choices(g->words.out, g->session));
    json_t *run = gw_json_object(
        "schema:i program:s version:s commit:s command:s started_utc:s options:o seed:I "
        "parameters:I tensors:o comm:o mpi:o machine:o link:o sources:o interruptions:o results:o",
        GW_RUN_SCHEMA, "library", GW_VERSION, GW_COMMIT, command, g->files.start_utc,
        gw_report_options(g->words.args), g->words.seed, g->n, report_tensors(g), report_comm(g),
        gw_report_mpi(), report_machine(g, total->hosts), gw_link_cost_json(&g->files.link_cost),
        report_sources(g), json_array(), report_results(g, total));
    if (!run)
        return gw_fail(GW_ERR_INTERNAL, "run.json: a text in it is not UTF-8");
    gw_file *file = NULL;
    gw_err e = gw_file_create(&file, g->words.out, "run.json");
    if (e == GW_OK)
        return gw_json_commit(file, run, JSON_INDENT(2) | JSON_REAL_PRECISION(9), "run.json");
    json_decref(run);
    return e;
}
