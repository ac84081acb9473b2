/** A step of a pipe's stages as the simulator plays it at the medians of prof/tempo.h, to be set
 *  beside what the stages waited. */
#ifndef GW_PREDICT_TEMPO_H
#define GW_PREDICT_TEMPO_H

#include "mesh/pipeline.h"

/** Collective over `comm`, all ranks of the mesh. *out, at rank 0: for run.json, the caller's; null
 *  where there is one stage or where the medians are not known. NULL elsewhere. `idle`: this rank's
 *  replica has no samples. `p` may be NULL. */
gw_err gw_predict_tempo(const gw_pipeline *p, const gw_parallel *o, bool idle, json_t **out,
                        MPI_Comm comm);

#endif
