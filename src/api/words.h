/** The words of a handle: options of `gradwire train` about the exchange and the run's folder. */
#ifndef GW_API_WORDS_H
#define GW_API_WORDS_H

#include "config/run.h"

/** The words as plain values. */
typedef struct gw_words {
    gw_args *args; /* all of them as resolved; the others point into them */
    gw_run_options run;
    const gw_spec *optimizer; /* NULL: gradwire_update has no rule */
    bool scaled;              /* gradients are already divided by the global batch */
    bool parts;               /* a rank needs only the parameters that it updates */
} gw_words;

/** Read `text` (NULL: "") and then $GRADWIRE. GW_ERR_USAGE; gw_words_free also then. */
gw_err gw_words_read(gw_words *w, const char *text);
/** The same for a handle beside the one that records. Options about the record are GW_ERR_USAGE in
 *  `text`; in $GRADWIRE they are left to the first handle. */
gw_err gw_words_beside(gw_words *w, const char *text);
/** Return a checksum over the resolved options that the state of an exchange depends on. */
uint32_t gw_words_exchange_sum(const gw_words *w);

void gw_words_free(gw_words *w);

#endif
