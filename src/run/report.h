/** What the exchange adds to a run's folder: its part of run.json, and algo.csv. */
#ifndef GW_RUN_REPORT_H
#define GW_RUN_REPORT_H

#include "run/codec_stats.h"
#include "run/session.h"

/** What the session sends, and how; `rows`: of the last epoch of gw_codec_stats_epoch, or NULL.
 *  `warning`: "" is none. New, the caller's. */
json_t *gw_report_comm(const gw_session *s, const gw_codec_row *rows, const char *warning);

/** Rank 0: DIR/algo.csv, what algo=auto chose, in the form that its table= reads; nothing if it
 *  chose nothing. */
gw_err gw_report_choices(const char *dir, const gw_session *session);

#endif
