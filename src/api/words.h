/** The words that a handle is made of: those options of `gradwire train` that concern the exchange
 *  and the run's folder. */
#ifndef GW_API_WORDS_H
#define GW_API_WORDS_H

#include "base/args.h"
#include "mpi/guard.h"
#include "prof/ledger.h"

/** What the words say, in plain values. */
typedef struct gw_words {
    gw_args *args; /* all of them as resolved, which the others point into */
    const gw_spec *comm, *compress;
    const char *feedback;
    bool wire_check, lazy;
    bool scaled; /* gradients come divided by the global batch */
    double momentum;
    uint64_t seed;
    int threads;
    const char *out; /* NULL: no folder */
    bool overwrite, trace, collectives;
    gw_on_nan on_nan;
    int compress_stats;
    int64_t verify_every;
    gw_profile profile;
    double hang_timeout_s; /* see watch/watchdog.h */
} gw_words;

/** Read `text` (NULL: "") and behind it $GRADWIRE. GW_ERR_USAGE; gw_words_free also then. */
gw_err gw_words_read(gw_words *w, const char *text);
/** A checksum over those that the state of an exchange depends on, as resolved. */
uint32_t gw_words_exchange_sum(const gw_words *w);

void gw_words_free(gw_words *w);

#endif
