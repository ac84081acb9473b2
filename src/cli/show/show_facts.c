/* gradwire show: what a run says of itself beyond its steps. */
#include "base/text.h"
#include "cli/show/show.h"
#include "machine/link_cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how near to the ceilings ---- */

/* Flops of a step's matrix products over `samples`: forward, the weights' gradient, and the inputs'
 * one above the first layer, 2 a weight and sample each. */
static double product_flops(const gw_show_run *r, double samples) {
    const char *c = gw_show_text(r, "options.layers");
    double from = gw_show_number(r, "data.features"), flops = 0, passes = 2;
    while (c && *c) {
        char *end;
        double to = strtod(c, &end);
        flops += passes * 2 * from * to * samples;
        from = to;
        passes = 3;
        c = end + (*end == ',');
        if (*end && *end != ',')
            return NAN;
    }
    return flops + passes * 2 * from * gw_show_number(r, "data.classes") * samples;
}

gw_show_rate gw_show_products(const gw_show_run *r) {
    double workers = gw_show_number(r, "machine.workers"),
           threads = gw_show_number(r, "machine.threads_per_rank"),
           batch = gw_show_number(r, "options.batch"),
           local = gw_show_number(r, "options.local-batch");
    return (gw_show_rate){.achieved = product_flops(r, isnan(local) ? batch / workers : local) /
                                      r->steps.median[GW_SHOW_PRODUCTS],
                          .ceiling = gw_show_number(r, "ceilings.fma_flops_per_s.one") * threads};
}

static void print_ceilings(const gw_show_run *r) {
    gw_show_rate products = gw_show_products(r);
    if (isnan(products.ceiling)) {
        printf("ceilings: absent\n");
        return;
    }
    const char *source = gw_show_text(r, "ceilings.source");
    printf("ceilings (%s%s): forward and backward %.1f of %.1f GFLOP/s a rank (%.1f%%)\n",
           source ? source : "source absent",
           gw_show_true(r, "ceilings.drifted") ? ", but the machine has DRIFTED since" : "",
           products.achieved / 1e9, products.ceiling / 1e9,
           100 * products.achieved / products.ceiling);
}

/* The wire bytes at the rate of the slowest link: a floor of what their exchange takes. */
static void print_links(const gw_show_run *r) {
    const json_t *links = gw_show_json(r, "ceilings.links");
    double slowest = 0, bytes = r->steps.median[GW_SHOW_WIRE_BYTES];
    for (size_t i = 0; i < json_array_size(links); i++)
        slowest =
            fmax(slowest,
                 json_number_value(json_object_get(json_array_get(links, i), "beta_s_per_byte")));
    if (slowest > 0 && !isnan(bytes))
        printf("slowest link: %.2f GB/s; a rank's wire bytes take it %.1f us\n", 1e-9 / slowest,
               bytes * slowest * 1e6);
}

/* What emulated links took of the cores; null in runs that are too short to tell, or older. */
static void print_link_cost(const gw_show_run *r) {
    double cores = gw_show_number(r, "link.cost.cores_per_rank"),
           system = gw_show_number(r, "link.cost.ranks_system_s"),
           seconds = gw_show_number(r, "link.cost.seconds");
    if (!gw_show_true(r, "link.emulated"))
        return;
    if (isnan(cores)) {
        printf("emulated link: what it took of the cores is absent\n");
        return;
    }
    printf(
        "emulated link: interrupts took %.1f%% of a core for each rank that trains%s; the ranks' "
        "own system time %.2f cores in all\n",
        100 * cores, cores > GW_LINK_COST_WARN ? " (MORE than 5%: overlap looks worse)" : "",
        system / seconds);
}

/* ---- what the run measured beside ---- */

static void print_straggler(const gw_show_run *r) {
    double rank = gw_show_number(r, "results.straggler.rank");
    if (gw_show_number(r, "machine.ranks") == 1)
        return;
    if (!isnan(rank))
        printf("straggler: rank %.0f, last at %.0f%% of the exchanges; each other rank waited "
               "%.1f us a step for it (%.1f%%)\n",
               rank, 100 * gw_show_number(r, "results.straggler.last_share"),
               1e6 * gw_show_number(r, "results.straggler.waited_s"),
               100 * gw_show_number(r, "results.straggler.of_step"));
    else
        printf("straggler: %s\n",
               isnan(r->part[GW_SHOW_PART_WAITING]) ? "absent" : "none noticeable");
}

/* How many products each library computes, and what bounds a piece of a long one. */
static void print_products(const gw_show_run *r) {
    const json_t *all = gw_show_json(r, "gemm.products");
    const char *source = gw_show_text(r, "gemm.source"), *note = gw_show_text(r, "gemm.note");
    static const char *const ways[] = {"dnnl", "dnnl-threads", "cblas"};
    if (!source)
        return;
    printf("products:");
    for (int w = 0; w < 3; w++) {
        int n = 0;
        for (size_t i = 0; i < json_array_size(all); i++) {
            const char *by = json_string_value(json_object_get(json_array_get(all, i), "whole"));
            n += by && strcmp(by, ways[w]) == 0;
        }
        if (n > 0)
            printf(" %d by %s", n, ways[w]);
    }
    printf(" (%s%s%s)", source, note ? ": " : "", note ? note : "");
    if (!isnan(gw_show_number(r, "gemm.piece.flops")))
        printf("; pieces of %.3g GFLOP (%.2g ms) between polls, the wire drains its buffer in "
               "%.2g ms",
               1e-9 * gw_show_number(r, "gemm.piece.flops"),
               1e3 * gw_show_number(r, "gemm.piece.seconds"),
               1e3 * gw_show_number(r, "gemm.piece.drain_s"));
    printf("\n");
}

static void print_saved(const gw_show_run *r) {
    double saved = gw_show_number(r, "results.paired.saved_s");
    if (isnan(saved))
        printf("saved by overlap: absent (train --paired measures it)\n");
    else
        printf("saved by overlap: %.1f us (95%%: %.1f .. %.1f), %.0f pairs; interference %.1f us "
               "(%.1f .. %.1f)\n",
               1e6 * saved, 1e6 * gw_show_number(r, "results.paired.saved_ci_low_s"),
               1e6 * gw_show_number(r, "results.paired.saved_ci_high_s"),
               gw_show_number(r, "results.paired.pairs"),
               1e6 * gw_show_number(r, "results.paired.interference_s"),
               1e6 * gw_show_number(r, "results.paired.interference_ci_low_s"),
               1e6 * gw_show_number(r, "results.paired.interference_ci_high_s"));
}

gw_show_bound gw_show_bound_of(const gw_show_run *r) {
    double s = gw_show_number(r, "bound.bound_s");
    return (gw_show_bound){s, s > 0 ? r->steps.median[GW_SHOW_WALL] / s : NAN};
}

static void print_bound(const gw_show_run *r) {
    gw_show_bound b = gw_show_bound_of(r);
    double transport = gw_show_number(r, "bound.transport_s");
    const char *mode = gw_show_text(r, "bound.mode");
    if (isnan(b.over)) {
        printf("bound of a step: absent (train --bound measures it)\n");
        return;
    }
    printf("bound of a step (%s): %.1f us, of computation %.1f us, wire %.1f us, transport ",
           mode ? mode : "mode absent", 1e6 * b.bound_s,
           1e6 * gw_show_number(r, "bound.computation_s"), 1e6 * gw_show_number(r, "bound.wire_s"));
    if (isnan(transport))
        printf("absent");
    else
        printf("%.1f us", 1e6 * transport);
    printf("; the step takes %.2f times that\n", b.over);
}

static void print_overhead(const gw_show_run *r) {
    double ratio = gw_show_number(r, "overhead.ratio");
    const char *why = gw_show_text(r, "overhead.why");
    if (isnan(ratio))
        printf("own overhead: absent%s%s\n", why ? ": " : "", why ? why : "");
    else
        printf("own overhead: %+.2f%% (95%%: %+.2f%% .. %+.2f%%), %.0f pairs\n", 100 * (ratio - 1),
               100 * (gw_show_number(r, "overhead.ci_low") - 1),
               100 * (gw_show_number(r, "overhead.ci_high") - 1),
               gw_show_number(r, "overhead.pairs"));
}

static void print_checks(const gw_show_run *r) {
    double compared = gw_show_number(r, "results.checks.replicas"),
           out = gw_show_number(r, "results.checks.nan.left_out"),
           frames = gw_show_number(r, "results.checks.wire.frames"),
           layer = gw_show_number(r, "results.checks.nan.first.layer");
    if (isnan(compared)) {
        printf("checks: absent\n");
        return;
    }
    printf("checks: replicas compared %.0f time%s", compared, compared == 1 ? "" : "s");
    if (!isnan(frames))
        printf(", %.0f frames whole", frames);
    if (out > 0) {
        printf("; %.0f step%s LEFT OUT, the first: step %.0f, rank %.0f", out, out == 1 ? "" : "s",
               gw_show_number(r, "results.checks.nan.first.step"),
               gw_show_number(r, "results.checks.nan.first.rank"));
        if (isnan(layer))
            printf(", the loss");
        else
            printf(", layer %.0f", layer);
    }
    printf("\n");
}

static void print_sources(const gw_show_run *r) {
    const char *key;
    json_t *value;
    printf("where from: core and memory: %s\n", r->split ? r->split : "absent");
    json_object_foreach((json_t *)gw_show_json(r, "sources"), key, value) {
        char plain[64];
        gw_text_plain(plain, sizeof plain, key);
        if (json_is_string(value))
            printf("            %s: %s\n", plain, json_string_value(value));
    }
}

void gw_show_facts(const gw_show_run *r) {
    print_products(r);
    print_straggler(r);
    print_saved(r);
    print_bound(r);
    print_ceilings(r);
    print_links(r);
    print_link_cost(r);
    print_overhead(r);
    print_checks(r);
    print_sources(r);
}
