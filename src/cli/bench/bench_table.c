#include "cli/bench/bench.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 32 };

typedef struct column {
    int blanks, width, digits; /* width: negative to the left */
    char type, head[LONGEST], key[LONGEST];
    bool printed;
} column;

static void table_next_field(const char **at, char out[LONGEST]) {
    size_t len = strcspn(*at, "|");
    snprintf(out, LONGEST, "%.*s", (int)len, *at);
    *at += len + ((*at)[len] == '|');
}

/* Take the next column off what is left of a table. */
static bool table_next_column(gw_bench_table *left, column *c) {
    *c = (column){.blanks = (int)strspn(left->form, " "), .printed = *left->form};
    if (c->printed) {
        char *end;
        c->width = (int)strtol(left->form + c->blanks + 1, &end, 10);
        c->digits = *end == '.' ? (int)strtol(end + 1, &end, 10) : 0;
        c->type = *end;
        left->form = end + 1;
        table_next_field(&left->heads, c->head);
    } else if (left->kept && *left->kept) {
        c->type = *left->kept++;
    }
    table_next_field(&left->keys, c->key);
    return c->type;
}

/* One cell behind `blanks` that are not printed yet, or fewer than none, where a cell took more
 * than its column; those that it leaves. `gap`: what stands for a blank within it. */
static int table_print_cell(const column *c, const char *text, char gap, int blanks) {
    int len = (int)strlen(text), pad = abs(c->width) - len;
    blanks += c->blanks + (c->width > 0 ? pad : 0);
    int left = c->width < 0 ? pad : 0;
    if (len == 0)
        return blanks + left;
    int least = blanks < c->blanks ? c->blanks : blanks;
    printf("%*s", least, "");
    for (const char *at = text; *at; at++)
        putchar(*at == ' ' ? gap : *at);
    return left + blanks - least;
}

void gw_bench_head(const gw_bench_table *t) {
    gw_bench_table left = *t;
    column c;
    printf("\n");
    for (int blanks = 0; table_next_column(&left, &c) && c.printed;)
        blanks = table_print_cell(&c, c.head, ' ', blanks);
    printf("\n");
}

static json_t *table_number_json(char type, double x) {
    if (type == 'b')
        return json_boolean(x > 0);
    return type == 'd' && isfinite(x) ? json_integer((json_int_t)x) : gw_json_number(x);
}

json_t *gw_bench_row(const gw_bench_table *t, json_t *rows, const char *const *texts,
                     const double *numbers) {
    gw_bench_table left = *t;
    json_t *row = json_object();
    column c;
    for (int blanks = 0; table_next_column(&left, &c);) {
        bool is_text = c.type == 's';
        const char *text = is_text ? *texts++ : NULL;
        double x = is_text ? NAN : *numbers++;
        char number[LONGEST];
        if (isfinite(x))
            snprintf(number, sizeof number, c.type == 'e' ? "%.*e" : "%.*f", c.digits,
                     x * (c.type == 'u'   ? 1e6
                          : c.type == 'm' ? 1e3
                          : c.type == 'p' ? 100
                                          : 1));
        if (c.printed)
            blanks = table_print_cell(&c,
                                      text          ? text
                                      : isfinite(x) ? number
                                                    : "-",
                                      *left.form ? '_' : ' ', blanks);
        if (*c.key)
            json_object_set_new(row, c.key,
                                text      ? json_string(text)
                                : is_text ? json_null()
                                          : table_number_json(c.type, x));
    }
    printf("\n");
    fflush(stdout);
    if (rows)
        json_array_append(rows, row);
    json_decref(row);
    return row;
}
