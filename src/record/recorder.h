/** Records a run, whoever takes its steps: the folder and the files that grow there row by row, the
 *  ledger, the log of exchanges, the ranks side by side, and run.json. The library and the trainer
 *  each have one; main thread.
 *
 *  In order: claim, before anybody reads the folder; open, when nothing is left that could be
 *  refused; begin, after rehearsals; step and epoch; end; and close in any case. Other functions
 *  may be called between two steps, at any time from open on. Functions are collective over the
 *  setup's `comm`, unless they say otherwise. GW_ERR_INTERNAL: a call is out of turn. */
#ifndef GW_RECORD_RECORDER_H
#define GW_RECORD_RECORDER_H

#include "base/args.h"
#include "folder/claim.h"
#include "folder/history.h"
#include "folder/runfolder.h"
#include "machine/busy.h"
#include "machine/energy.h"
#include "machine/host.h"
#include "machine/link_cost.h"
#include "mpi/mesh.h"
#include "prof/matrix.h"
#include "prof/ranks.h"
#include "prof/waits.h"
#include "record/live.h"

struct gw_codec_stats;
struct gw_codec_row;
struct gw_session;

enum { GW_RECORDER_ROWS = 4096 /* most batch rows kept between two flushes */ };

typedef struct gw_recorder_setup {
    MPI_Comm comm; /* of all ranks; kept */
    int rank, ranks;
    const MPI_Comm *along; /* as gw_waits_open has it; kept */
    const char *out;       /* the folder, kept; NULL: none, and no files */
    gw_profile profile;
    bool collectives, trace, evaluations; /* files that were asked for */
    const char *log;                      /* as gw_live_open has it, kept; NULL: none */
    int log_every;
    const gw_args *args;      /* kept */
    const gw_host_node *node; /* kept: other work on its machines is watched; */
    bool early;               /* from now on, else from the first step on */
} gw_recorder_setup;

/** The checkpoint that a run goes on from. */
typedef struct gw_recorder_past {
    const char *path;
    const json_t *marks; /* as gw_recorder_mark made them */
    const char *by;      /* as gw_rows_resume has it */
    bool strict;         /* refuse if the rows of the steps before are not beside it */
    bool ended;          /* no step is left to take */
} gw_recorder_past;

/** Facts that the opening needs. */
typedef struct gw_recorder_opening {
    gw_runfolder_use use;
    bool parts;                  /* rows survive a killed process: they may be marked */
    bool mesh;                   /* batches.csv has the columns of one, if it begins here */
    gw_repeat repeats[2];        /* as gw_record_repeats has it */
    const char *const *counters; /* as gw_record_counters has it */
    int n_counters;
    struct gw_session *session;   /* open: its codecs are watched, */
    int compress_stats;           /* and compared with none each so many steps; 0: never */
    int64_t step;                 /* so many have been taken by earlier starts */
    const gw_recorder_past *past; /* NULL: the run begins here */
} gw_recorder_opening;

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

/** Which of the calls above comes next. */
typedef enum gw_recorder_state {
    GW_RECORDER_NEW,
    GW_RECORDER_CLAIMED,
    GW_RECORDER_OPEN, /* the ledger runs */
    GW_RECORDER_BEGUN,
    GW_RECORDER_ENDED
} gw_recorder_state;

/** Rank 0's own. */
typedef struct gw_recorder_outputs {
    gw_claim *claim;
    gw_live *live;
    FILE *epochs, *evaluations;
} gw_recorder_outputs;

/** Left by earlier starts of the run. */
typedef struct gw_recorder_earlier {
    int64_t steps;
    char utc[GW_UTC];   /* of the first start */
    const char *lacks;  /* rank 0: a line about rows that should be there; NULL: they are */
    bool concludes;     /* rank 0: no step is left to take, and what only steps could fill stays as
                          the last of them left it: */
    bool matrix, trace; /* these files; trace: on all ranks */
    json_t *told;       /* run.json; NULL: there was none */
} gw_recorder_earlier;

/** All members may be read; those from `zero_s` on may be written, too. `resident` and `energy` are
 *  told of evaluations. */
typedef struct gw_recorder {
    gw_recorder_setup of;
    gw_recorder_state state;
    gw_recorder_outputs to;
    gw_rows *rows; /* the files that grow; NULL: no folder */
    gw_record *record;
    gw_waits *waits; /* NULL: --profile off */
    gw_resident resident;
    struct gw_codec_stats *stats;
    gw_busy_watch watch;
    gw_energy energy;
    char start_utc[GW_UTC]; /* of this start */
    gw_recorder_earlier earlier;
    gw_batch_row row; /* this rank's last, complete after a flush */
    gw_epoch_row last;
    char warning[256];                     /* the last one */
    const struct gw_codec_row *codec_rows; /* of the last epoch; NULL: not asked for */
    gw_recorder_total total;
    int64_t step;        /* so many are done, */
    int64_t tested;      /* and after so many the model was last evaluated */
    int64_t flush_at;    /* the step whose end is the next flush, the same on all ranks */
    bool mesh;           /* batches.csv has the columns of one */
    double zero_s;       /* when the first step could begin, by the ledger's clock */
    double train_s;      /* in batches */
    uint64_t wire_bytes; /* that this rank sent */
    gw_recorder_sum sum;
} gw_recorder;

/** Local: only the setup and the time of the start. gw_recorder_claim does it; alone for whoever
 *  fills a recorder in by hand. */
void gw_recorder_start(gw_recorder *r, const gw_recorder_setup *of);

/** Lock the folder: nobody else writes into it from now on; and open the log. */
gw_err gw_recorder_claim(gw_recorder *r, const gw_recorder_setup *of);

/** An older run in the folder gives way, or is continued; its files are opened, and the ledger
 *  starts. What cannot be continued is refused before anything changes. */
gw_err gw_recorder_open(gw_recorder *r, const gw_recorder_opening *o);

/** Local, before the first step: so many more have been taken by earlier starts. */
void gw_recorder_count_on(gw_recorder *r, int64_t steps);

/** The first step comes next: open the timeline, if it was asked for; time counts from here. */
gw_err gw_recorder_begin(gw_recorder *r);

/** After a step: record it, and see what the codecs do; now and then rows go to their files. `out`:
 *  it was left out. *warning (else untouched): a new one. */
gw_err gw_recorder_step(gw_recorder *r, const gw_batch_parts *parts, bool out,
                        const char **warning);

/** The epoch ends with this row; sums begin anew. */
gw_err gw_recorder_epoch(gw_recorder *r, const gw_epoch_row *row);

/** After the last step: fill in `total`, complete the files of rows and rename them. `workers`:
 *  ranks that train. */
gw_err gw_recorder_end(gw_recorder *r, int workers);

/** Local: free the recorder, and abandon files that are not complete. */
void gw_recorder_close(gw_recorder *r);

/** Local: call them around what the run sends outside of batches; its bytes count. */
void gw_recorder_aside(void);
void gw_recorder_aside_end(gw_recorder *r);

/** Local: a warning for run.json, copied. */
void gw_recorder_warn(gw_recorder *r, const char *line);

/** Rows and exchanges so far go to their files. */
gw_err gw_recorder_flush(gw_recorder *r);

/** *wire: bytes sent so far, by all ranks; GW_UNCOUNTED: nobody counts. */
gw_err gw_recorder_wire(const gw_recorder *r, uint64_t *wire);

/** Flush, and fill in what the steps of the epoch come to so far; train_loss is NaN if there are no
 *  samples. */
gw_err gw_recorder_sums(gw_recorder *r, gw_epoch_row *row);

/** The model was evaluated: a row of evaluations.csv, unless the step has one, or `row` no
 *  accuracy. */
gw_err gw_recorder_tested(gw_recorder *r, const gw_epoch_row *row);

/** Rank 0, after a flush: *marks: how far the files are, for gw_recorder_past; the caller's. */
gw_err gw_recorder_mark(gw_recorder *r, json_t **marks);

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
