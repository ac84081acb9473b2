/** Formulas over named numbers: + - * /, unary minus, min(a, b), max(a, b), parentheses, numbers as
 *  strtod reads them. Event groups (counters/group.h) are written with them. */
#ifndef GW_COUNTERS_EXPR_H
#define GW_COUNTERS_EXPR_H

#include "base/err.h"

#include <stdbool.h>

enum { GW_EXPR_STEPS = 48 };

/** A parsed formula: steps for a stack machine. Plain data: copy it, nothing to free. */
typedef struct gw_expr {
    int steps; /* 0: no formula */
    struct gw_expr_step {
        char op; /* '#': push number, '$': push name, '~': negate, '<': min, '>': max, + - * / */
        int name;
        double number;
    } step[GW_EXPR_STEPS];
} gw_expr;

/** Parse `text` over names[0..n). GW_ERR_INPUT: what is wrong and at which character. */
gw_err gw_expr_parse(gw_expr *out, const char *text, const char *const *names, int n);

/** Its value with values[i] for names[i]; an undefined value (0 / 0) is NaN. */
double gw_expr_value(const gw_expr *e, const double *values);

/** True if it reads names[i]. */
bool gw_expr_uses(const gw_expr *e, int i);

#endif
