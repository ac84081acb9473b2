/* run.json. */
#include "record/recorder.h"

#include "base/file.h"
#include "base/json.h"
#include "base/version.h"
#include "machine/host.h"
#include "prof/clock.h"

#include <math.h>

static json_t *recorder_machine(const gw_recorder *r, const gw_recorder_report *of) {
    gw_host h;
    gw_host_facts(&h);
    const gw_busy *before = r->total.before.seconds > 0 ? &r->total.before : NULL;
    return gw_json_object(
        "hosts:o cpu:s cpus_online:i cpus_usable:i cores_usable:i memory_bytes:I ranks:i workers:i "
        "nodes:i ranks_on_this_node:i threads_per_rank:i helper_threads_per_rank:i "
        "oversubscribed:b busy:o clock:s",
        json_incref(r->total.hosts), h.cpu_model, h.cpus_online, h.cpus_usable, h.cores_usable,
        h.memory, r->of.ranks, of->workers, of->node.nodes, of->node.ranks, of->threads,
        of->helpers, of->oversubscribed, gw_busy_run_json(before, &r->total.during),
        gw_clock_name());
}

/* Which figures were observed and which follow from a formula. */
static json_t *recorder_sources(const gw_recorder *r, const gw_recorder_report *of) {
    static const char form[] =
        "phases:s waiting_s:s hidden_s:s memory_s:s wire_bytes:s peak_bytes:s";
    if (r->of.profile == GW_PROFILE_OFF)
        return gw_json_object(form, "absent", "absent", "absent", "absent", "absent", of->resident);
    return gw_json_object(form, of->phases,
                          "measured: blocked before the last rank's arrival, on a common clock",
                          "upper bound: computation while a message was in flight", of->memory,
                          of->wire, of->resident);
}

static json_t *recorder_results(const gw_recorder *r, const gw_recorder_report *of) {
    const gw_epoch_row *last = &r->last;
    const gw_recorder_total *t = &r->total;
    gw_report_steps steps = of->of;
    json_t *peak, *sum;
    char hash[16];
    steps.summary = &t->summary;
    gw_ranks_memory_json(t->by_rank, r->of.ranks, &peak, &sum);
    json_t *results = gw_json_object(
        "steps:I stopped_by:s train_loss:f validation_loss:f validation_accuracy:f test_loss:f "
        "test_accuracy:f elapsed_s:f train_s:f wire_bytes:u traffic:o summary:o peak_bytes:o "
        "peak_sum_bytes:o ranks:o straggler:o exchanges_dropped:I",
        of->steps, of->stopped_by, last->train_loss, last->validation_loss,
        last->validation_accuracy, last->test_loss, last->test_accuracy, t->elapsed_s, r->train_s,
        of->wire_bytes, gw_report_traffic(r->of.profile, &t->traffic), gw_report_summary(&steps),
        peak, sum, gw_ranks_json(t->by_rank, r->of.ranks), gw_report_straggler(&t->straggler),
        t->dropped);
    snprintf(hash, sizeof hash, "%08x", last->replica_hash);
    return last->epoch > 0 ? gw_json_add(results, "replica_hash:s", hash) : results;
}

/* The members of `more`, which is freed, to the object `to`; NULL, and that is freed: one of the
 * two is. */
static json_t *recorder_join(json_t *to, json_t *more) {
    bool joined = to && more && json_object_update(to, more) == 0;
    json_decref(more);
    if (!joined)
        json_decref(to);
    return joined ? to : NULL;
}

gw_err gw_recorder_json(const gw_recorder *r, const gw_recorder_report *of, json_t **out) {
    json_t *interruptions = NULL;
    gw_err e = gw_history_read(r->of.out, &interruptions);
    json_t *run = gw_json_object(
        "schema:i program:s version:s commit:s command:s started_utc:s options:o seed:I "
        "parameters:I comm:o mpi:o machine:o link:o sources:o interruptions:o results:o",
        GW_RUN_SCHEMA, of->program, GW_VERSION, GW_COMMIT, of->command, of->started_utc,
        gw_report_options(of->args), of->seed, of->parameters, of->comm, gw_report_mpi(),
        recorder_join(recorder_machine(r, of), of->machine), gw_link_cost_json(&r->total.link_cost),
        recorder_sources(r, of), e == GW_OK ? interruptions : json_null(),
        recorder_join(recorder_results(r, of), of->results));
    *out = recorder_join(run, of->more);
    if (e == GW_OK && !*out)
        e = gw_fail(GW_ERR_INTERNAL, "run.json: a text in it is not UTF-8");
    return e;
}

gw_err gw_recorder_write(const gw_recorder *r, json_t *run) {
    gw_file *file = NULL;
    gw_err e = gw_file_create(&file, r->of.out, "run.json");
    if (e == GW_OK)
        return gw_json_commit(file, run, JSON_INDENT(2) | JSON_REAL_PRECISION(9), "run.json");
    json_decref(run);
    return e;
}
