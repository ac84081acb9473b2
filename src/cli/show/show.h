/** `gradwire show`: what is known of a run, out of its folder alone, and how it is put. */
#ifndef GW_CLI_SHOW_SHOW_H
#define GW_CLI_SHOW_SHOW_H

#include "cli/show/show_steps.h"

#include <jansson.h>

/** Parts of a step, which stack up to it. */
typedef enum gw_show_part {
    GW_SHOW_PART_DATA,
    GW_SHOW_PART_CORE,
    GW_SHOW_PART_EITHER, /* computation that no source puts to core or memory */
    GW_SHOW_PART_MEMORY,
    GW_SHOW_PART_CODEC,
    GW_SHOW_PART_WAITING,
    GW_SHOW_PART_TRANSFER,
    GW_SHOW_PART_MPI, /* exposed communication that is not divided */
    GW_SHOW_PART_CHECKPOINT,
    GW_SHOW_PART_OTHER,
    GW_SHOW_PARTS
} gw_show_part;

typedef struct gw_show_run {
    const char *dir; /* as the user named it */
    json_t *json;    /* run.json */
    gw_show_steps steps;
    double part[GW_SHOW_PARTS]; /* medians, s; NaN: absent, or another part holds it */
    const char *split;          /* where core and memory come from; NULL: absent */
} gw_show_run;

/** Read folder `dir` (kept). GW_ERR_INPUT: not the folder of a finished run, or of a version that
 *  this one does not know. Close in any case. */
gw_err gw_show_run_open(gw_show_run *run, const char *dir);
void gw_show_run_close(gw_show_run *run);

/** Make each text of run.json one line that can be printed (see gw_text_line): whoever sent the
 * folder could have put there what a terminal takes for a command. */
void gw_show_run_plain(gw_show_run *run);

/** What run.json holds under "key.key.."; NULL, NaN: absent. Texts are owned by the run. */
const json_t *gw_show_json(const gw_show_run *run, const char *path);
const char *gw_show_text(const gw_show_run *run, const char *path);
double gw_show_number(const gw_show_run *run, const char *path);
bool gw_show_true(const gw_show_run *run, const char *path);

/** Name of a part in JSON: "data", "core", ... */
extern const char *const gw_show_part_names[GW_SHOW_PARTS];

typedef struct gw_show_style {
    bool utf8, colours;
    int width; /* characters a line */
} gw_show_style;

/** Flops a second of the matrix products of a rank, worked out from the model's shape and the time
 *  of forward and backward passes, and the ceiling: a thread's multiply-adds when it is alone,
 *  times the rank's threads; NaN: absent. */
typedef struct gw_show_rate {
    double achieved, ceiling;
} gw_show_rate;

gw_show_rate gw_show_products(const gw_show_run *run);

/** The bound of its steps (docs/measurement.md), and the step over it; NaN: absent. */
typedef struct gw_show_bound {
    double bound_s, over;
} gw_show_bound;

gw_show_bound gw_show_bound_of(const gw_show_run *run);

/** Print what else the run tells of itself: a line a fact. */
void gw_show_facts(const gw_show_run *run);

/** Print runs[0..n) for people; see gw_show_run_plain. */
void gw_show_print(const gw_show_run *runs, int n, const gw_show_style *style);

/** The same for programs; NULL: memory ran out. */
json_t *gw_show_document(const gw_show_run *runs, int n);

#endif
