/** What an algorithm asks of a codec, found out by running it: a codec that sends the floats as
 * they are and counts. So the number of encodings and decodings of any algorithm, plugins included,
 *  comes from the algorithm itself and from no table. One tally a process; codings are counted
 * where they are called, which is one thread. */
#ifndef GW_SELECT_TALLY_H
#define GW_SELECT_TALLY_H

#include "base/probe.h"
#include "compress/codec.h"

typedef struct gw_tally {
    double floats[GW_CODINGS], calls[GW_CODINGS];
} gw_tally;

/** Open the counting codec, 4 bytes a float; `summed`: one whose encodings MPI can add. */
void gw_tally_open(gw_codec *out, bool summed);

/** Begin anew; what was counted since. */
void gw_tally_reset(void);
gw_tally gw_tally_read(void);

#endif
