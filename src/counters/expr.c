#include "counters/expr.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32 }; /* parentheses and signs: protects the stack */

typedef struct reader {
    const char *text, *at;
    const char *const *names;
    int n, depth;
    gw_expr *out;
} reader;

static gw_err expr_wrong(const reader *r, const char *what) {
    return gw_fail(GW_ERR_INPUT, "formula '%.80s': %s at character %d", r->text, what,
                   (int)(r->at - r->text) + 1);
}

static void expr_blanks(reader *r) {
    r->at += strspn(r->at, " \t");
}

static gw_err expr_emit(reader *r, char op, int name, double number) {
    if (r->out->steps == GW_EXPR_STEPS)
        return expr_wrong(r, "too long");
    r->out->step[r->out->steps++] = (struct gw_expr_step){op, name, number};
    return GW_OK;
}

static gw_err expr_expect(reader *r, char c) {
    expr_blanks(r);
    if (*r->at != c) {
        char what[] = "'?' expected";
        what[1] = c;
        return expr_wrong(r, what);
    }
    r->at++;
    return GW_OK;
}

static gw_err expr_sum(reader *r);

static gw_err expr_atom(reader *r) {
    expr_blanks(r);
    if (isalpha((unsigned char)*r->at) || *r->at == '_') {
        const char *from = r->at;
        size_t len = 0;
        while (isalnum((unsigned char)from[len]) || from[len] == '_')
            len++;
        for (int i = 0; i < r->n; i++)
            if (strlen(r->names[i]) == len && memcmp(r->names[i], from, len) == 0) {
                r->at += len;
                return expr_emit(r, '$', i, 0);
            }
        bool min = len == 3 && memcmp(from, "min", 3) == 0;
        if (!min && !(len == 3 && memcmp(from, "max", 3) == 0))
            return expr_wrong(r, "not the name of an event");
        r->at += len;
        GW_TRY(expr_expect(r, '('));
        GW_TRY(expr_sum(r));
        GW_TRY(expr_expect(r, ','));
        GW_TRY(expr_sum(r));
        GW_TRY(expr_expect(r, ')'));
        return expr_emit(r, min ? '<' : '>', 0, 0);
    }
    if (*r->at == '(') {
        r->at++;
        GW_TRY(expr_sum(r));
        return expr_expect(r, ')');
    }
    if (!isdigit((unsigned char)*r->at) && *r->at != '.')
        return expr_wrong(r, "a number, a name or '(' expected");
    char *end;
    double x = strtod(r->at, &end);
    if (end == r->at || !isfinite(x))
        return expr_wrong(r, "no number");
    r->at = end;
    return expr_emit(r, '#', 0, x);
}

static gw_err expr_factor(reader *r) {
    if (++r->depth > DEEPEST)
        return expr_wrong(r, "nested too deep");
    expr_blanks(r);
    gw_err e;
    if (*r->at == '-') {
        r->at++;
        e = expr_factor(r);
        e = e == GW_OK ? expr_emit(r, '~', 0, 0) : e;
    } else {
        e = expr_atom(r);
    }
    r->depth--;
    return e;
}

static gw_err expr_product(reader *r) {
    GW_TRY(expr_factor(r));
    for (expr_blanks(r); *r->at == '*' || *r->at == '/'; expr_blanks(r)) {
        char op = *r->at++;
        GW_TRY(expr_factor(r));
        GW_TRY(expr_emit(r, op, 0, 0));
    }
    return GW_OK;
}

static gw_err expr_sum(reader *r) {
    GW_TRY(expr_product(r));
    for (expr_blanks(r); *r->at == '+' || *r->at == '-'; expr_blanks(r)) {
        char op = *r->at++;
        GW_TRY(expr_product(r));
        GW_TRY(expr_emit(r, op, 0, 0));
    }
    return GW_OK;
}

gw_err gw_expr_parse(gw_expr *out, const char *text, const char *const *names, int n) {
    *out = (gw_expr){0};
    reader r = {.text = text, .at = text, .names = names, .n = n, .out = out};
    GW_TRY(expr_sum(&r));
    return *r.at ? expr_wrong(&r, "an operator expected") : GW_OK;
}

static double expr_apply(char op, double a, double b) {
    switch (op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return b == 0 ? NAN : a / b;      /* a rate of nothing is not known */
    case '<': return a < b || isnan(a) ? a : b; /* not fmin, which ignores NaN */
    default: return a > b || isnan(a) ? a : b;
    }
}

double gw_expr_value(const gw_expr *e, const double *values) {
    double stack[GW_EXPR_STEPS + 1] = {NAN};
    int top = 0;
    for (int i = 0; i < e->steps; i++) {
        const struct gw_expr_step *s = &e->step[i];
        if (s->op == '#') {
            stack[++top] = s->number;
        } else if (s->op == '$') {
            stack[++top] = values[s->name];
        } else if (s->op == '~') {
            stack[top] = -stack[top];
        } else {
            top--;
            stack[top] = expr_apply(s->op, stack[top], stack[top + 1]);
        }
    }
    return stack[top];
}

bool gw_expr_uses(const gw_expr *e, int i) {
    for (int s = 0; s < e->steps; s++)
        if (e->step[s].op == '$' && e->step[s].name == i)
            return true;
    return false;
}
