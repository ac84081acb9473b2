/** The words that a handle is made of: those options of `gradwire train` that concern the exchange
 *  and the run's folder. */
#ifndef GW_API_WORDS_H
#define GW_API_WORDS_H

#include "config/run.h"

/** What the words say, in plain values. */
typedef struct gw_words {
    gw_args *args; /* all of them as resolved, which the others point into */
    gw_run_options run;
    const gw_spec *optimizer; /* NULL: gradwire_update has no rule */
    bool scaled;              /* gradients come divided by the global batch */
    bool parts;               /* no rank needs parameters but those that it updates */
} gw_words;

/** Read `text` (NULL: "") and behind it $GRADWIRE. GW_ERR_USAGE; gw_words_free also then. */
gw_err gw_words_read(gw_words *w, const char *text);
/** The same for a handle beside the one that records. GW_ERR_USAGE, too: `text` has what is about
 *  the record; of $GRADWIRE that is left to the first. */
gw_err gw_words_beside(gw_words *w, const char *text);
/** A checksum over those that the state of an exchange depends on, as resolved. */
uint32_t gw_words_exchange_sum(const gw_words *w);

void gw_words_free(gw_words *w);

#endif
