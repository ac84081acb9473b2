/** Parts of run.json that say of a run what does not depend on its exchange. Values are new and the
 *  caller's, as in base/json.h. */
#ifndef GW_FOLDER_REPORT_H
#define GW_FOLDER_REPORT_H

#include "base/args.h"
#include "prof/matrix.h"
#include "prof/ranks.h"

/** All options as resolved. */
json_t *gw_report_options(const gw_args *args);

/** The MPI library, its thread level, and what of the environment tunes it. */
json_t *gw_report_mpi(void);

/** The name of an MPI thread level. */
const char *gw_report_thread_level(int level);

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

#endif
