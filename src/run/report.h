/** Parts of run.json, and algo.csv, that any program with a session writes. Values are new and the
 *  caller's, as in base/json.h. */
#ifndef GW_RUN_REPORT_H
#define GW_RUN_REPORT_H

#include "prof/matrix.h"
#include "prof/ranks.h"
#include "run/codec_stats.h"
#include "run/session.h"

/** All options as resolved. */
json_t *gw_report_options(const gw_args *args);

/** The MPI library, its thread level, and what of the environment tunes it. */
json_t *gw_report_mpi(void);

/** The name of an MPI thread level. */
const char *gw_report_thread_level(int level);

/** Sampled layers, rows of the last epoch of gw_codec_stats_epoch. */
json_t *gw_report_codecs(const gw_codec_row *rows, int n);

/** What the session sends, and how; `layers` (of gw_report_codecs, or null) becomes a part of it.
 *  `warning`: "" is none. */
json_t *gw_report_comm(const gw_session *s, json_t *layers, const char *warning);

/** What a run's steps came to. */
typedef struct gw_report_steps {
    const gw_batch_summary *summary;
    int64_t split, flagged; /* batches with a memory split by twins; those flagged */
    json_t *dimensions;     /* gw_report_summary's from then on */
    double bubble_s;
} gw_report_steps;
json_t *gw_report_summary(const gw_report_steps *of);

/** null with GW_PROFILE_OFF: nothing is counted. */
json_t *gw_report_traffic(gw_profile profile, const gw_matrix_total *t);

json_t *gw_report_straggler(const gw_straggler *s);

/** Collective: *out (rank 0's, else untouched): the names of all hosts, each once, in the order of
 *  the ranks. */
gw_err gw_report_hosts(json_t **out, MPI_Comm comm);

/** Rank 0: DIR/algo.csv, what algo=auto chose, in the form that its table= reads; nothing if it
 *  chose nothing. */
gw_err gw_report_choices(const char *dir, const gw_session *session);

#endif
