#include "roofline/gauge.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "machine/host.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/clock.h"
#include "roofline/ceilings_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The ranks that share this host's cores, and whether this one works for them. */
static gw_err gauge_open_host(const gw_gauge_setup *s, MPI_Comm *host, bool *leads) {
    gw_host_link link;
    int emulated, rank;
    GW_TRY(gw_agree(s->comm, gw_host_link_read(&link)));
    emulated = link.emulated;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &emulated, 1, MPI_INT, MPI_MAX, s->comm));
    if (emulated)
        GW_TRY(gw_comm_dup(s->comm, host));
    else
        GW_MPI(MPI_Comm_split_type(s->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, host));
    GW_TRY(gw_comm_place(*host, &rank, NULL));
    *leads = rank == 0;
    return GW_OK;
}

gw_err gw_gauge_identify(gw_ceilings *want, const gw_gauge_setup *s, MPI_Comm host) {
    gw_host facts;
    gw_host_facts(&facts);
    *want = (gw_ceilings){.threads = s->threads, .oversubscribed = s->oversubscribed};
    snprintf(want->host, sizeof want->host, "%s", facts.name);
    snprintf(want->cpu, sizeof want->cpu, "%s", facts.cpu_model);
    snprintf(want->kernels, sizeof want->kernels, "%s", gw_gemm_library());
    return gw_allreduce(&s->threads, &want->all_threads, 1, MPI_INT, MPI_SUM, host);
}

static gw_err gauge_read_set(gw_ceilings *c, const gw_ceilings *want, bool any_host,
                             const char *path) {
    gw_err e = gw_ceilings_load(c, path);
    return e == GW_OK ? gw_ceilings_fit(c, want, any_host, path) : e;
}

static void gauge_remark(gw_gauge *g, const char *what) {
    size_t len = strlen(g->note);
    gw_text_print(g->note + len, sizeof g->note - len, "%s%s", len ? "; " : "", what);
}

/* Collective over `host`: what the ranks compute, at the one that leads. */
static gw_err gauge_gather(const gw_gauge_setup *s, MPI_Comm host, bool leads, gw_shard **shards,
                           int *n) {
    GW_TRY(gw_comm_place(host, NULL, n));
    GW_TRY(gw_agree(host, gw_alloc(shards, leads ? (size_t)*n : 0, sizeof **shards)));
    int bytes = (int)sizeof **shards;
    GW_MPI(MPI_Gather(s->twins.load.shard, bytes, MPI_BYTE, *shards, bytes, MPI_BYTE, 0, host));
    for (int i = 0; leads && i < *n; i++)
        (*shards)[i].spec.ops = s->twins.load.shard->spec.ops; /* an address of each process */
    return GW_OK;
}

/* From the file, the cache, or by measuring. */
static gw_err gauge_obtain(gw_gauge *g, const gw_gauge_setup *s, const gw_ceilings *want,
                           const char *cache) {
    if (strcmp(s->from, "auto") != 0) {
        g->source = GW_GAUGE_FILE;
        return gauge_read_set(&g->c, want, true, s->from);
    }
    FILE *there = *cache ? fopen(cache, "r") : NULL;
    if (there) {
        fclose(there);
        g->source = GW_GAUGE_CACHED;
        if (gauge_read_set(&g->c, want, false, cache) == GW_OK)
            return GW_OK;
        gauge_remark(g, gw_err_text());
    }
    g->source = GW_GAUGE_MEASURED;
    g->c = *want;
    return gw_ceilings_measure(&g->c);
}

static gw_err gauge_lead(gw_gauge *g, const gw_gauge_setup *s, const gw_ceilings *want,
                         const gw_shard *shards, int n) {
    char cache[GW_CEILINGS_PATH];
    gw_ceilings_cache(want, cache);
    GW_TRY(gauge_obtain(g, s, want, cache));
    gw_twin_setup twins = s->twins;
    twins.load.batch = g->batch;
    for (int i = 0; i < n; i++) { /* what two shards have in common is measured once */
        int added;
        twins.load.shard = &shards[i];
        GW_TRY(gw_twins_measure(&g->c, &twins, &added));
        g->added += added;
    }
    bool fresh = g->source == GW_GAUGE_MEASURED || g->added > 0;
    if (g->source == GW_GAUGE_MEASURED && gw_ceilings_disturbed(&g->c)) {
        gauge_remark(
            g, "others were at work while all threads were measured: not kept for later runs");
        fresh = false;
    }
    if (*cache && g->source != GW_GAUGE_FILE && fresh && gw_ceilings_store(&g->c, cache) != GW_OK)
        gauge_remark(g, gw_err_text());
    gw_ceilings_drop_unused(&g->c); /* run.json has no use for other models' times */
    /* Of now, however old the set is. */
    GW_TRY(gw_drift_look(gw_drift_probe, NULL, &g->before));
    g->age_s = fmax(0, (double)time(NULL) - (double)g->c.measured_at);
    return GW_OK;
}

/* One rank works, the others sleep until it says what came of it. */
static gw_err gauge_share(gw_gauge *g, const gw_gauge_setup *s, MPI_Comm host, bool leads) {
    gw_ceilings want;
    gw_shard *shards = NULL;
    int n;
    GW_TRY(gw_gauge_identify(&want, s, host));
    GW_TRY(gw_allreduce(&s->twins.load.batch, &g->batch, 1, MPI_INT, MPI_MAX, host));
    gw_err e = gauge_gather(s, host, leads, &shards, &n);
    if (e == GW_OK && leads)
        e = gauge_lead(g, s, &want, shards, n);
    free(shards);
    GW_TRY(gw_bcast_asleep(g, (int)sizeof *g, 0, host));
    return gw_agree(s->comm, e);
}

gw_err gw_gauge_open(gw_gauge *g, const gw_gauge_setup *s) {
    MPI_Comm host = MPI_COMM_NULL;
    bool leads;
    *g = (gw_gauge){.drift = NAN};
    gw_clock_start();
    uint64_t start = gw_clock_ticks();
    gw_err e = gauge_open_host(s, &host, &leads);
    GW_THEN(e, gauge_share(g, s, host, leads));
    if (host != MPI_COMM_NULL)
        MPI_Comm_free(&host);
    GW_TRY(e);
    GW_TRY(gw_links_measure(s->comm, g->link, &g->links));
    g->took_s = gw_clock_since(start);
    return gw_allreduce(MPI_IN_PLACE, &g->took_s, 1, MPI_DOUBLE, MPI_MAX, s->comm);
}

gw_err gw_gauge_check(const gw_gauge_setup *s) {
    MPI_Comm host = MPI_COMM_NULL;
    bool leads;
    gw_ceilings want, *got = NULL;
    if (strcmp(s->from, "auto") == 0)
        return GW_OK;
    gw_err e = gauge_open_host(s, &host, &leads);
    GW_THEN(e, gw_gauge_identify(&want, s, host));
    if (host != MPI_COMM_NULL)
        MPI_Comm_free(&host);
    if (e == GW_OK && leads)
        e = gw_alloc(&got, 1, sizeof *got);
    if (got)
        e = gauge_read_set(got, &want, true, s->from);
    free(got);
    return gw_agree(s->comm, e);
}

gw_err gw_gauge_close(gw_gauge *g, const gw_gauge_setup *s) {
    MPI_Comm host = MPI_COMM_NULL;
    bool leads;
    if (g->source == GW_GAUGE_ABSENT)
        return GW_OK;
    GW_TRY(gauge_open_host(s, &host, &leads));
    double drift = 0;
    gw_err e =
        leads ? gw_drift_since(gw_drift_probe, NULL, g->before, GW_GAUGE_DRIFT, &drift) : GW_OK;
    MPI_Request request;
    gw_err late = gw_mpi_check(MPI_Ibarrier(host, &request), "MPI_Ibarrier");
    if (late == GW_OK)
        late = gw_wait_asleep(&request);
    MPI_Comm_free(&host);
    GW_TRY(late);
    GW_TRY(gw_agree(s->comm, e));
    double known = isfinite(drift) ? drift : 0;
    double ends[3] = {-known, known, isnan(drift)}; /* the largest fall and rise of any host */
    GW_TRY(gw_allreduce(MPI_IN_PLACE, ends, 3, MPI_DOUBLE, MPI_MAX, s->comm));
    double largest = ends[0] > ends[1] ? -ends[0] : ends[1];
    g->drift = ends[2] > 0 && fabs(largest) <= GW_GAUGE_DRIFT ? NAN : largest;
    return GW_OK;
}

json_t *gw_gauge_json(const gw_gauge *g) {
    static const char *const sources[] = {"absent", "measured", "cached", "file"};
    json_t *all = g->source == GW_GAUGE_ABSENT ? NULL : gw_ceilings_json(&g->c);
    if (!all)
        return json_null();
    json_t *products = json_array(), *links = json_array();
    for (int i = 0; i < g->c.n_times; i++) { /* products as rates, by which they are compared */
        const gw_ceiling_time *t = &g->c.time[i];
        char shape[4];
        int m, n, k;
        if (sscanf(t->name, "product %2s %dx%dx%d", shape, &m, &n, &k) == 4)
            json_array_append_new(
                products, gw_json_object("operands:s m:i n:i k:i s:f flops_per_s:f", shape, m, n, k,
                                         t->seconds, 2.0 * m * n * k / t->seconds));
    }
    for (int i = 0; i < g->links; i++) {
        const gw_link *l = &g->link[i];
        json_array_append_new(
            links, gw_json_object("from:i to:i over:s alpha_s:f beta_s_per_byte:f", l->from, l->to,
                                  l->same_host ? "shared memory" : "network", l->alpha_s,
                                  l->beta_s_a_byte));
    }
    json_t *drifted = isnan(g->drift) ? json_null() : json_boolean(fabs(g->drift) > GW_GAUGE_DRIFT);
    return gw_json_add(all,
                       "source:s age_s:f took_s:f times_measured_now:i note:t products:o links:o "
                       "drift:f drifted:o",
                       sources[g->source], g->age_s, g->took_s, g->added, g->note, products, links,
                       g->drift, drifted);
}
