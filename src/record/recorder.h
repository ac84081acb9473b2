/** What is recorded of a run, whoever takes its steps: the folder and the files that grow there row
 *  by row, the ledger, the log of exchanges, the ranks side by side, and run.json. The library and
 *  the trainer each have one; main thread.
 *
 *  In order: start, claim, rows, open, replace, measure, begin; then push after each step, look and
 *  flush between steps, epoch; then total, end, write; and close in any case. Functions are
 *  collective over the setup's `comm`, unless they say otherwise. */
#ifndef GW_RECORD_RECORDER_H
#define GW_RECORD_RECORDER_H

#include "base/args.h"
#include "folder/claim.h"
#include "folder/history.h"
#include "folder/runfolder.h"
#include "machine/busy.h"
#include "machine/energy.h"
#include "machine/link_cost.h"
#include "mpi/mesh.h"
#include "prof/matrix.h"
#include "prof/ranks.h"
#include "prof/waits.h"
#include "record/live.h"

struct gw_codec_stats;
struct gw_codec_row;

enum { GW_RECORDER_ROWS = 4096 /* most batch rows kept between two flushes */ };

typedef struct gw_recorder_setup {
    MPI_Comm comm; /* of all ranks; kept */
    int rank, ranks;
    const MPI_Comm *along; /* as gw_waits_open has it; kept */
    const char *out;       /* the folder, kept; NULL: none, and no files */
    gw_profile profile;
    bool collectives, trace; /* files that were asked for */
    const char *log;         /* as gw_live_open has it, kept; NULL: none */
    int log_every;
    const gw_args *args; /* kept */
} gw_recorder_setup;

/** What this rank's batches of the epoch so far add up to. */
typedef struct gw_recorder_sum {
    double loss;
    int64_t samples, left_out; /* left_out: of these, those of steps that are; not in `loss` */
} gw_recorder_sum;

/** What all batches and ranks come to. */
typedef struct gw_recorder_total {
    gw_batch_summary summary; /* rank 0's, like all that follows but before and during */
    gw_rank_figures *by_rank; /* the recorder's */
    json_t *hosts, *energy;   /* likewise */
    gw_straggler straggler;
    gw_matrix_total traffic; /* zeros with --profile off */
    gw_busy before, during;  /* what else the machines did: until the first step (zeros: nobody
                                   looked), and from there on */
    gw_link_cost link_cost;
    uint64_t dropped; /* exchanges that the log had no room for */
    double elapsed_s; /* from the first step to the end */
} gw_recorder_total;

/** All members may be read; those from `rows` on may be written, too. */
typedef struct gw_recorder {
    gw_recorder_setup of;
    gw_claim *claim;  /* rank 0's */
    FILE *epochs_csv; /* likewise */
    gw_live *live;    /* likewise */
    gw_record *record;
    gw_waits *waits; /* NULL: --profile off */
    bool measures;   /* the ledger runs */
    gw_resident resident;
    char start_utc[GW_UTC]; /* of this start */
    gw_epoch_row last;
    char warning[256];                     /* the last one */
    const struct gw_codec_row *codec_rows; /* of the last epoch; NULL: not asked for */
    gw_recorder_total total;
    gw_rows *rows;                /* the files that grow; NULL: no folder */
    struct gw_codec_stats *stats; /* the recorder's, once it is there */
    gw_busy_watch watch;          /* likewise */
    gw_energy energy;
    int64_t began_at;    /* steps that earlier starts have done */
    int64_t flush_at;    /* the step whose end is the next flush, the same on all ranks */
    double zero_s;       /* when the first step could begin, by the ledger's clock */
    double train_s;      /* in batches */
    uint64_t wire_bytes; /* that this rank sent */
    gw_recorder_sum sum;
    bool has_matrix; /* matrix.csv is an earlier start's, and stays */
} gw_recorder;

/** Local. */
void gw_recorder_start(gw_recorder *r, const gw_recorder_setup *of);

/** Lock the folder: nobody else writes into it from now on; and open the log. */
gw_err gw_recorder_claim(gw_recorder *r);

/** Local: the files that grow; `parts` as gw_rows_new has it. */
gw_err gw_recorder_rows(gw_recorder *r, bool parts);

/** batches.csv; `mesh`: with the columns of one; `repeats` as gw_record_repeats has it. */
gw_err gw_recorder_open(gw_recorder *r, bool mesh, const gw_repeat repeats[2]);

/** Rank 0, when nothing is left that could be refused: an older run in the folder gives way, and
 *  epochs.csv begins, or is continued by a run that resumes. */
gw_err gw_recorder_replace(gw_recorder *r, gw_runfolder_use use);

/** Start the ledger, `clock_s` seconds after the run's first start. */
gw_err gw_recorder_measure(gw_recorder *r, double clock_s);

/** Open the timeline, if it was asked for. */
gw_err gw_recorder_trace(const gw_recorder *r);

/** Local: the first step may begin. */
void gw_recorder_begin(gw_recorder *r);

/** Local: record a batch that has ended; `out`: it was left out. *row: its row of batches.csv. */
gw_err gw_recorder_push(gw_recorder *r, const gw_batch_parts *parts, bool out, gw_batch_row *row);

/** Local: call them around what the run sends outside of batches; its bytes count. */
void gw_recorder_aside(void);
void gw_recorder_aside_end(gw_recorder *r);

/** Between batches, after `step`: see what the codecs do. *warning (else untouched): a new one. */
gw_err gw_recorder_look(gw_recorder *r, int64_t step, const char **warning);

/** Local: a warning for run.json, copied. */
void gw_recorder_warn(gw_recorder *r, const char *line);

/** Between batches: rows and exchanges so far to their files. *last (may be NULL; else untouched
 *  if there is none): this rank's last row, completed. */
gw_err gw_recorder_flush(gw_recorder *r, int64_t step, gw_batch_row *last);

/** *wire: bytes sent so far, by all ranks; GW_UNCOUNTED: nobody counts. */
gw_err gw_recorder_wire(const gw_recorder *r, uint64_t *wire);

/** *loss: the mean over the epoch's samples so far; NaN: there are none. */
gw_err gw_recorder_loss(const gw_recorder *r, double *loss);

/** The epoch ends with this row; sums begin anew. */
gw_err gw_recorder_epoch(gw_recorder *r, const gw_epoch_row *row);

/** After the last flush: fill in `total`. `steps`: of the run; `workers`: ranks that train. */
gw_err gw_recorder_total_up(gw_recorder *r, int64_t steps, int workers);

/** Complete and rename the files of rows, `more` (NULL: none) one of them. */
gw_err gw_recorder_end(gw_recorder *r, const gw_table *more);

/** Local: free the recorder, and abandon files that are not complete. */
void gw_recorder_close(gw_recorder *r);

/** Where figures come from; NULL: they are absent. */
typedef struct gw_recorder_sources {
    const char *phases, *memory, *wire, *resident;
} gw_recorder_sources;

/** What run.json has of every run, beside what the recorder knows. */
typedef struct gw_recorder_report {
    const char *program, *command, *started_utc, *stopped_by;
    const char *statistic; /* what figures of a step are; NULL: gw_steady_name */
    const gw_args *args;
    uint64_t seed, parameters, wire_bytes;
    int64_t steps;
    gw_host_node node;
    int workers, threads, helpers;
    bool oversubscribed;
    int64_t split, flagged; /* batches with a memory split by twins; those flagged */
    double bubble_s;        /* of a step; NaN: there is none */
    gw_recorder_sources sources;
    /* Owned: the exchange; what of a step goes along each dimension; members of run.json, of its
     * "machine" and "results" beside those of every run. */
    json_t *comm, *dimensions, *more, *machine, *results;
} gw_recorder_report;

/** All options as resolved. */
json_t *gw_recorder_options(const gw_args *args);

/** What of a step goes along each dimension of a mesh; null: there is none. */
json_t *gw_recorder_dimensions(const gw_batch_summary *b, const gw_mesh_shape *mesh);

/** Rank 0: *out: run.json's content. GW_ERR_INTERNAL: a text is not UTF-8. */
gw_err gw_recorder_json(const gw_recorder *r, const gw_recorder_report *of, json_t **out);

#endif
