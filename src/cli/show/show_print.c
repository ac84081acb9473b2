/* gradwire show for people: what each run was, one bar a run on one scale, a table of the figures.
 */
#include "cli/show/show.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Blocks for a terminal that has them, letters for all others; a colour of the 16 (SGR). */
static const struct look {
    const char *block, *letter;
    int colour;
} looks[GW_SHOW_PARTS] = {
    [GW_SHOW_PART_DATA] = {"▄", "D", 36},       [GW_SHOW_PART_CORE] = {"█", "C", 32},
    [GW_SHOW_PART_EITHER] = {"▓", "c", 92},     [GW_SHOW_PART_MEMORY] = {"▒", "M", 33},
    [GW_SHOW_PART_CODEC] = {"▚", "K", 35},      [GW_SHOW_PART_WAITING] = {"░", "w", 31},
    [GW_SHOW_PART_TRANSFER] = {"▞", "t", 34},   [GW_SHOW_PART_MPI] = {"▖", "m", 94},
    [GW_SHOW_PART_CHECKPOINT] = {"▌", "k", 95}, [GW_SHOW_PART_OTHER] = {"·", ".", 37},
};

enum { LABEL = 24, CELL = 18 };

typedef struct page {
    const gw_show_run *runs;
    int n;
    const gw_show_style *style;
    double scale_s; /* what a full bar stands for */
    double factor;  /* seconds to the unit of the table */
    const char *unit;
    int decimals;
} page;

/* ---- what the runs were ---- */

static const char *plural(double n) {
    return n == 1 ? "" : "s";
}

static const char *or_absent(const char *text) {
    return text ? text : "absent";
}

static void print_model(const gw_show_run *r) {
    const char *layers = gw_show_text(r, "options.layers");
    printf("    model %.0f", gw_show_number(r, "data.features"));
    for (const char *c = layers ? layers : ""; *c;) {
        size_t len = strcspn(c, ",");
        printf("-%.*s", (int)len, c);
        c += len + (c[len] == ',');
    }
    printf("-%.0f on %s, ", gw_show_number(r, "data.classes"),
           or_absent(gw_show_text(r, "data.name")));
    double local = gw_show_number(r, "options.local-batch");
    if (isnan(local))
        printf("global batch %.0f", gw_show_number(r, "options.batch"));
    else
        printf("local batch %.0f", local);
    printf(", --update %s\n", or_absent(gw_show_text(r, "options.update")));
}

static void print_machine(const gw_show_run *r) {
    double ranks = gw_show_number(r, "machine.ranks"), nodes = gw_show_number(r, "machine.nodes"),
           threads = gw_show_number(r, "machine.threads_per_rank"),
           helpers = gw_show_number(r, "machine.helper_threads_per_rank"),
           rate = gw_show_number(r, "link.rate_bits_per_s");
    printf("    %.0f rank%s x %.0f thread%s", ranks, plural(ranks), threads, plural(threads));
    if (helpers > 0)
        printf(" + %.0f for progress", helpers);
    printf(" on %.0f node%s", nodes, plural(nodes));
    if (gw_show_true(r, "machine.oversubscribed"))
        printf(", OVERSUBSCRIBED: times say little");
    if (gw_show_true(r, "link.emulated"))
        printf(", link EMULATED: %.0f hosts at %g Mbit/s%s", gw_show_number(r, "link.hosts"),
               rate / 1e6, json_is_array(gw_show_json(r, "link.host_rates")) ? " and more" : "");
    printf("\n");
}

static void print_lines(const char *what, const json_t *lines) {
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *line = json_string_value(json_array_get(lines, i));
        if (line)
            printf("      %s: %s\n", what, line);
    }
}

/* The gaps are in no figure, but what came after them is no undisturbed run. */
static void print_restart(const gw_show_run *r) {
    double step = gw_show_number(r, "resumed.step"),
           ranks = gw_show_number(r, "resumed.from_ranks");
    const json_t *all = gw_show_json(r, "interruptions");
    size_t times = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const char *event = json_string_value(json_object_get(json_array_get(all, i), "event"));
        times += event && strcmp(event, "resumed") == 0;
    }
    if (isnan(step) && times == 0)
        return;
    printf("    INTERRUPTED, resumed %zu time%s", times, plural((double)times));
    if (!isnan(step))
        printf(", last after step %.0f of %.0f rank%s", step, ranks, plural(ranks));
    if (r->steps.others > 0)
        printf("; %lld steps of other numbers of ranks left out", (long long)r->steps.others);
    printf("\n");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        print_lines("changed", json_object_get(one, "changed"));
        print_lines("dropped", json_object_get(one, "dropped"));
    }
}

static void print_steps(const gw_show_run *r) {
    const gw_show_steps *s = &r->steps;
    long long dirty = (long long)(s->steps - s->clean);
    printf("    %lld steps after %lld of warm-up, ", (long long)s->steps, (long long)s->warmup);
    if (s->judged)
        printf("%lld of them contaminated (%.1f%%): ", dirty,
               100.0 * (double)dirty / (double)s->steps);
    else
        printf("whether contaminated is not known: ");
    if (s->contaminated)
        printf("NONE CLEAN, so medians over contaminated ones\n");
    else
        printf("medians over %lld%s%s\n", (long long)s->drawn, s->judged ? " clean" : "",
               s->drawn < s->clean ? ", drawn at random" : "");
}

/* With its options, but where the run chose it. */
static const char *codec(const gw_show_run *r) {
    const char *asked = gw_show_text(r, "options.compress");
    bool chosen = !asked || strncmp(asked, "auto", 4) == 0;
    return chosen ? or_absent(gw_show_text(r, "comm.codec")) : asked;
}

static void print_run(const page *p, int i) {
    const gw_show_run *r = &p->runs[i];
    if (p->n > 1)
        printf("[%d] ", i + 1);
    printf("%s: %s over %s, codec %s%s\n", r->dir, or_absent(gw_show_text(r, "comm.strategy")),
           or_absent(gw_show_text(r, "comm.algorithm")), codec(r),
           gw_show_true(r, "comm.error_feedback") ? " with error feedback" : "");
    print_model(r);
    print_machine(r);
    print_restart(r);
    print_steps(r);
}

/* ---- bars ---- */

static void cells(const page *p, gw_show_part part, int n) {
    if (n <= 0)
        return;
    if (p->style->colours)
        printf("\033[%dm", looks[part].colour);
    for (int i = 0; i < n; i++)
        fputs(p->style->utf8 ? looks[part].block : looks[part].letter, stdout);
    if (p->style->colours)
        printf("\033[0m");
}

/* Cells that `s` seconds fill of a bar of `width`. */
static int fill(const page *p, double s, int width) {
    double n = p->scale_s > 0 ? s / p->scale_s * width : 0; /* fmax(NaN, 0) is 0: absent */
    return (int)lround(fmin(fmax(n, 0), width));
}

/* Ends of the parts are rounded, not their lengths, so that the whole has the right length. */
static void stack(const page *p, const gw_show_run *r, int width) {
    double s = 0;
    for (int part = 0; part < GW_SHOW_PARTS; part++) {
        int from = fill(p, s, width);
        s += r->part[part] > 0 ? r->part[part] : 0; /* false for NaN: nothing to show */
        cells(p, (gw_show_part)part, fill(p, s, width) - from);
    }
}

static double total(const gw_show_run *r) {
    double s = 0;
    for (int part = 0; part < GW_SHOW_PARTS; part++)
        s += r->part[part] > 0 ? r->part[part] : 0;
    return s;
}

static void print_stacks(const page *p) {
    int width = p->style->width - 28;
    for (int i = 0; i < p->n; i++) {
        const gw_show_run *r = &p->runs[i];
        double wall = r->steps.median[GW_SHOW_WALL];
        char label[16] = "step";
        if (p->n > 1)
            snprintf(label, sizeof label, "[%d]", i + 1);
        printf("%-5s %9.*f %-2s", label, p->decimals, wall * p->factor, p->unit);
        if (p->n > 1)
            printf(" %6.2fx", wall / p->runs[0].steps.median[GW_SHOW_WALL]);
        else
            printf("        ");
        printf(" |");
        stack(p, r, width);
        printf("\n");
    }
}

/* ---- the table ---- */

typedef struct cell {
    char text[CELL + 8];
} cell;

static cell seconds(const page *p, const gw_show_run *r, double s) {
    cell c;
    double wall = r->steps.median[GW_SHOW_WALL];
    if (isnan(s))
        snprintf(c.text, sizeof c.text, "absent       ");
    else
        snprintf(c.text, sizeof c.text, "%.*f %s %5.1f%%", p->decimals, s * p->factor, p->unit,
                 100 * s / wall);
    return c;
}

static cell slowest(const gw_show_run *r) {
    cell c;
    const gw_show_steps *s = &r->steps;
    if (s->slowest < 0)
        snprintf(c.text, sizeof c.text, "%s",
                 gw_show_number(r, "machine.ranks") > 1 ? "absent" : "one rank");
    else
        snprintf(c.text, sizeof c.text, "rank %d %+.1f%%", s->slowest,
                 100 * (s->slowest_s / s->own_s - 1));
    return c;
}

static cell bytes(const gw_show_run *r) {
    cell c;
    double n = r->steps.median[GW_SHOW_WIRE_BYTES];
    snprintf(c.text, sizeof c.text, isnan(n) ? "absent" : "%.0f", n);
    return c;
}

typedef struct row {
    const char *label;
    int part;   /* or -1: */
    int figure; /* or -1: */
    cell (*special)(const gw_show_run *r);
} row;

static const row rows[] = {
    {"data", GW_SHOW_PART_DATA, -1, NULL},
    {"computation", -1, GW_SHOW_COMPUTE, NULL},
    {"  core", GW_SHOW_PART_CORE, -1, NULL},
    {"  core or memory", GW_SHOW_PART_EITHER, -1, NULL},
    {"  memory-bound", GW_SHOW_PART_MEMORY, -1, NULL},
    {"codec", GW_SHOW_PART_CODEC, -1, NULL},
    {"  memory-bound, ctr", -1, GW_SHOW_CODEC_MEMORY_CTR, NULL},
    {"  memory-bound, twin", -1, GW_SHOW_CODEC_MEMORY_TWIN, NULL},
    {"exposed communication", -1, GW_SHOW_EXPOSED, NULL},
    {"  waiting", GW_SHOW_PART_WAITING, -1, NULL},
    {"  transfer", GW_SHOW_PART_TRANSFER, -1, NULL},
    {"  other in MPI", GW_SHOW_PART_MPI, -1, NULL},
    {"checkpoint", GW_SHOW_PART_CHECKPOINT, -1, NULL},
    {"other", GW_SHOW_PART_OTHER, -1, NULL},
    {"in flight, at most", -1, GW_SHOW_INFLIGHT, NULL},
    {"slowest rank", -1, -1, slowest},
    {"wire bytes a rank", -1, -1, bytes},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* What no run has is left out where another row says as much. */
static bool wanted(const page *p, const row *w) {
    if (w->part != GW_SHOW_PART_CHECKPOINT && w->part != GW_SHOW_PART_EITHER &&
        w->figure != GW_SHOW_CODEC_MEMORY_CTR && w->figure != GW_SHOW_CODEC_MEMORY_TWIN)
        return true;
    for (int i = 0; i < p->n; i++) {
        const gw_show_run *r = &p->runs[i];
        if ((w->part < 0 ? r->steps.median[w->figure] : r->part[w->part]) > 0)
            return true;
    }
    return false;
}

static void print_row(const page *p, const row *w, int from, int to) {
    cells(p, (gw_show_part)w->part, w->part >= 0);
    printf("%s%-*s", w->part >= 0 ? " " : "  ", LABEL - 2, w->label);
    for (int i = from; i < to; i++) {
        const gw_show_run *r = &p->runs[i];
        double s = w->part >= 0     ? r->part[w->part]
                   : w->figure >= 0 ? r->steps.median[w->figure]
                                    : NAN;
        cell c = w->special ? w->special(r) : seconds(p, r, s);
        printf("%*s", CELL, c.text);
        int length = fill(p, s, p->style->width - LABEL - CELL - 2);
        if (p->n == 1 && w->part >= 0 && length > 0) {
            printf("  ");
            cells(p, (gw_show_part)w->part, length);
        }
    }
    printf("\n");
}

static void print_table(const page *p) {
    int fit = (p->style->width - LABEL) / CELL;
    fit = fit < 1 ? 1 : fit;
    for (int from = 0; from < p->n; from += fit) {
        int to = from + fit < p->n ? from + fit : p->n;
        printf("\n");
        if (p->n > 1) {
            printf("%*s", LABEL, "");
            for (int i = from; i < to; i++) {
                char head[16];
                snprintf(head, sizeof head, "[%d]", i + 1);
                printf("%*s", CELL, head);
            }
            printf("\n");
        }
        for (int i = 0; i < ROWS; i++)
            if (wanted(p, &rows[i]))
                print_row(p, &rows[i], from, to);
    }
}

static void print_facts(const page *p) {
    printf(
        "\nMedians over steps of the mean over the ranks, of the step the longest; shares are of "
        "the step.\n");
    for (int i = 0; i < p->n; i++) {
        if (p->n > 1)
            printf("\n[%d]\n", i + 1);
        gw_show_facts(&p->runs[i]);
    }
}

void gw_show_print(const gw_show_run *runs, int n, const gw_show_style *style) {
    double longest = 0;
    page p = {.runs = runs, .n = n, .style = style};
    for (int i = 0; i < n; i++) {
        longest = fmax(longest, runs[i].steps.median[GW_SHOW_WALL]);
        p.scale_s = fmax(p.scale_s, fmax(total(&runs[i]), longest));
    }
    p.factor = longest < 0.01 ? 1e6 : longest < 10 ? 1e3 : 1;
    p.unit = longest < 0.01 ? "us" : longest < 10 ? "ms" : "s";
    p.decimals = longest < 0.01 ? 1 : 2;
    for (int i = 0; i < n; i++)
        print_run(&p, i);
    printf("\n");
    print_stacks(&p);
    print_table(&p);
    print_facts(&p);
}
