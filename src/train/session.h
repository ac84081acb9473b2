/** The life of communication in a run: parsed before MPI starts, opened over a model's arenas, then
 *  fronts for each hook of the strategy that name the ledger's phase. What a front does outside
 *  codec and MPI calls (bookkeeping of strategy and engine) is communication time, too. */
#ifndef GW_TRAIN_SESSION_H
#define GW_TRAIN_SESSION_H

#include "comm/strategy.h"

typedef struct gw_session gw_session;

/** Parse and check the combination; no MPI call. `feedback`: "on", "off" or "auto" (on for codecs
 *  that are biased). GW_ERR_USAGE, GW_ERR_INPUT or GW_ERR_UNSUPPORTED as the registries say. */
gw_err gw_session_new(gw_session **out, const char *comm, const char *compress,
                      const char *feedback);

/** Frees; call gw_session_close first if it was opened. */
void gw_session_free(gw_session *s);

/** MPI thread level that the strategy asks for. */
int gw_session_thread_level(const gw_session *s);

const char *gw_session_strategy(const gw_session *s);
const char *gw_session_algorithm(const gw_session *s);
const gw_codec *gw_session_codec(const gw_session *s);
bool gw_session_feedback(const gw_session *s);

/** Collective: open lanes and strategy over arenas of n floats cut into layers (the session keeps
 *  pointers: all must outlive it). `yield`: the node runs more threads than cores. */
gw_err gw_session_open(gw_session *s, MPI_Comm comm, float *param, float *grad, size_t n,
                       const gw_span *layers, int n_layers, uint64_t seed, bool yield);
void gw_session_close(gw_session *s); /* collective */

/** A new exchange begins; before the first ready() of a step. */
void gw_session_begin(gw_session *s);

/** The strategy's hooks; see comm/strategy.h. */
gw_err gw_session_ready(gw_session *s, gw_span span);
gw_err gw_session_progress(gw_session *s);
gw_err gw_session_finish(gw_session *s, gw_span span, gw_update *u);
gw_err gw_session_publish(gw_session *s, gw_span span);

/** Float32 bytes of all spans finished so far. */
uint64_t gw_session_logical_bytes(const gw_session *s);

#endif
