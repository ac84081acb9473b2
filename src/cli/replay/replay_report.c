#include "cli/replay/replay_report.h"

#include "base/file.h"
#include "base/json.h"
#include "folder/claim.h"
#include "machine/host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What the link alone takes for a rank's bytes; NaN: it is not known, or ranks share one. */
static double report_floor_s(const gw_replay_facts *f, double wire_bytes) {
    gw_host_link link;
    if (gw_host_link_read(&link) != GW_OK || !link.emulated || link.hosts < f->player->ranks)
        return NAN;
    return 8 * wire_bytes / (double)link.rate_bits_per_s;
}

static double report_number(const json_t *summary, const char *key) {
    const json_t *value = json_object_get(summary, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static json_t *report_profile(const gw_step_profile *p) {
    return gw_json_object(
        "model:s source:s device:s machine:s date:s torch:s threads:i batch:i tensors:i "
        "forward_s:f backward_s:f optimizer_s:f",
        p->model, p->source, p->device, p->machine, p->date, p->torch, (int)p->threads,
        (int)p->batch, p->n_tensors, p->forward_s, p->backward_s, p->optimizer_s);
}

static json_t *report_json(const gw_replay_facts *f, double floor_s) {
    const gw_player *p = f->player;
    return gw_json_object(
        "profile:o compute:s speed:f bucket_mb:f gradients:s data_dependent:b late_s:f "
        "link_floor_s:f",
        report_profile(p->profile), p->sleeps ? "sleep" : "spin", p->speed,
        (double)p->bucket / 1048576, f->gradients, f->data_dependent,
        p->sleeps ? p->late_s / (double)p->steps : NAN, floor_s);
}

static void report_part(const char *name, double seconds) {
    if (!isnan(seconds))
        printf(", %s %.3f ms", name, 1e3 * seconds);
}

static void report_unmet(json_t *item) {
    const char *option, *value, *what, *why;
    if (json_unpack(item, "{s:s, s:s, s:s, s:s}", "option", &option, "value", &value, "what", &what,
                    "why", &why) == 0)
        printf("note: --%s %s: %s: %s\n", option, value, what, why);
}

static void report_print(const gw_replay_facts *f, const json_t *run, double floor_s) {
    const gw_player *p = f->player;
    const json_t *summary = json_object_get(json_object_get(run, "results"), "summary");
    printf("replayed: %s, %d tensors, %zu parameters; batch %ld on %s (%s), %g times as fast, %s\n",
           p->profile->model, p->profile->n_tensors, p->profile->n, p->profile->batch,
           p->profile->device, p->profile->machine, p->speed,
           p->sleeps ? "slept" : "spun on this core");
    printf("step %.3f ms", 1e3 * report_number(summary, "wall_s"));
    report_part("exposed communication", report_number(summary, "exposed_s"));
    report_part("in flight under computation", report_number(summary, "hidden_s"));
    report_part("codec and copies", report_number(summary, "codec_s"));
    printf("; %.0f wire bytes a rank", report_number(summary, "wire_bytes"));
    if (!isnan(floor_s))
        printf(", which take the link %.3f ms", 1e3 * floor_s);
    printf("\n");
    json_t *busy =
        json_object_get(json_object_get(json_object_get(run, "machine"), "busy"), "during");
    if (json_is_true(json_object_get(busy, "warned")))
        printf("warning: during this run %s: its times are not to be trusted\n",
               json_string_value(json_object_get(busy, "text")));
    if (*p->copied)
        printf("note: gradients are copied, not summed in place: %s\n", p->copied);
    const json_t *unmet = json_object_get(json_object_get(run, "comm"), "unmet");
    for (size_t i = 0; i < json_array_size(unmet); i++)
        report_unmet(json_array_get(unmet, i));
    if (f->data_dependent)
        printf("note: the codec's bytes or time depend on the gradients, and these are normal "
               "numbers: give captured ones by --gradients FILE\n");
    printf("run folder: %s\n", f->out);
}

static gw_err report_write(const gw_replay_facts *f, bool tells) {
    char *text, path[4096];
    size_t len;
    snprintf(path, sizeof path, "%s/run.json", f->out);
    GW_TRY(gw_file_read(path, 1 << 26, &text, &len));
    json_t *run = json_loadb(text, len, 0, NULL);
    free(text);
    if (!run)
        return gw_fail(GW_ERR_INTERNAL, "replay: %s: cannot be read again", path);
    json_t *summary = json_object_get(json_object_get(run, "results"), "summary");
    double floor_s = report_floor_s(f, report_number(summary, "wire_bytes"));
    run = gw_json_add(run, "program:s replay:o", "replay", report_json(f, floor_s));
    if (run && tells)
        report_print(f, run, floor_s);
    gw_file *file;
    gw_err e = gw_file_create(&file, f->out, "run.json");
    if (e == GW_OK)
        return gw_json_commit(file, run, JSON_INDENT(2) | JSON_REAL_PRECISION(9), "run.json");
    json_decref(run);
    return e;
}

/* The run is closed, and its folder free: it is claimed for this, too. */
gw_err gw_replay_report(const gw_replay_facts *facts, bool tells) {
    gw_claim *claim;
    GW_TRY(gw_claim_take(&claim, facts->out));
    gw_err e = report_write(facts, tells);
    gw_claim_release(claim);
    return e;
}
