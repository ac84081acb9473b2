/** JSON helpers for the files of a run (jansson): unknown values are null, never 0 or "". Returned
 *  values are new, and the caller owns them; NULL: out of memory. */
#ifndef GW_BASE_JSON_H
#define GW_BASE_JSON_H

#include "base/file.h"
#include "base/stats.h"

#include <jansson.h>

/** Make a number; null if x is not finite. */
json_t *gw_json_number(double x);

/** Add members to the object `to` and return it. `members` is "NAME:TYPE NAME:TYPE ..", followed by
 *  their values: i int, I int64_t or uint64_t, u uint64_t (UINT64_MAX: null), f double (not finite:
 *  null), b bool, s text (NULL: null), t text (NULL and "": null), o json_t * (the object owns it).
 *  NULL, and `to` is freed: out of memory, or a text that is not UTF-8. */
json_t *gw_json_add(json_t *to, const char *members, ...);

/** Make an object with such members. */
#define gw_json_object(...) gw_json_add(json_object(), __VA_ARGS__)

/** Set the members NAMEUNIT, NAME_ci_lowUNIT and NAME_ci_highUNIT of `to`: the median and its
 *  interval. */
void gw_json_stats(json_t *to, const char *name, const char *unit, const gw_stats *s);

/** Write `document` and a newline to `file` with json_dumpf's `flags`, and commit. Free both in any
 *  case; document may be NULL, which fails. `what`: the file, for messages. */
gw_err gw_json_commit(gw_file *file, json_t *document, size_t flags, const char *what);

#endif
