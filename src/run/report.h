/** What the exchange adds to a run's folder: its part of run.json, and algo.csv. */
#ifndef GW_RUN_REPORT_H
#define GW_RUN_REPORT_H

#include "run/codec_stats.h"
#include "run/session.h"

/** Describe what the session sends, and how. `rows`: of gw_codec_stats_epoch, for the last epoch,
 *  or NULL. `warning`: "" is none. The caller owns the new object. */
json_t *gw_report_comm(const gw_session *s, const gw_codec_row *rows, const char *warning);

/** On rank 0: write what algo=auto chose to DIR/algo.csv, in the form that its table= reads;
 *  nothing if it chose nothing. */
gw_err gw_report_choices(const char *dir, const gw_session *session);

#endif
