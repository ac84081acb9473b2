/* The reader of CSV tables: a cell is taken whole and as it is, or refused by its line. */
#include "base/table.h"

#include "unit.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct row {
    int i;
    int64_t wide;
    uint64_t big;
    long count;
    double real;
} row;

static const gw_column columns[] = {
    GW_COLUMN(row, "i", INT, i),           GW_COLUMN(row, "wide", I64, wide),
    GW_COLUMN(row, "big", U64, big),       GW_COLUMN(row, "count", COUNT, count),
    GW_COLUMN_REAL(row, "real", real, 17),
};
static const gw_table table = GW_TABLE("rows.csv", row, columns);

/* The table's only row is `line`. */
static gw_err read_row(const char *line, row *out) {
    char text[512];
    bool more = false;
    snprintf(text, sizeof text, "i,wide,big,count,real\n%s\n", line);
    FILE *in = fmemopen(text, strlen(text), "r");
    assert_non_null(in);
    gw_table_reader r = {.table = &table, .in = in, .path = "here"};
    gw_err e = gw_table_read(&r, out, &more);
    fclose(in);
    assert_true(e != GW_OK || more);
    return e;
}

static void test_ends_of_ranges(void **state) {
    row r;
    assert_int_equal(read_row("2147483647,9223372036854775807,18446744073709551614,"
                              "9223372036854775807,1e308",
                              &r),
                     GW_OK);
    assert_true(r.i == INT_MAX && r.wide == INT64_MAX && r.big == UINT64_MAX - 1);
    assert_true(r.count == LONG_MAX && r.real == 1e308);
    assert_int_equal(read_row("-2147483648,-9223372036854775808,0,0,-inf", &r), GW_OK);
    assert_true(r.i == INT_MIN && r.wide == INT64_MIN && r.big == 0 && r.count == 0);
    assert_true(isinf(r.real) && r.real < 0);
}

static void test_blank(void **state) {
    row r;
    assert_int_equal(read_row("1,1,,,", &r), GW_OK);
    assert_true(r.big == UINT64_MAX && r.count == -1 && isnan(r.real));
}

static void test_refused(void **state) {
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"4294967298,1,1,1,1", "invalid i '4294967298'"},
        {"2147483648,1,1,1,1", "invalid i"},
        {"-2147483649,1,1,1,1", "invalid i"},
        {",1,1,1,1", "invalid i ''"},
        {"1x,1,1,1,1", "invalid i '1x'"},
        {"+1,1,1,1,1", "invalid i '+1'"},
        {"1,9223372036854775808,1,1,1", "invalid wide"},
        {"1,,1,1,1", "invalid wide"},
        {"1,1,18446744073709551615,1,1", "invalid big"},
        {"1,1,18446744073709551616,1,1", "invalid big"},
        {"1,1,-1,1,1", "invalid big"},
        {"1,1,1,-1,1", "invalid count"},
        {"1,1,1,9223372036854775808,1", "invalid count"},
        {"1,1,1,1,nan", "invalid real"},
        {"1,1,1,1,1e", "invalid real '1e'"},
        {"1,1,1,1", "must have 5 fields"},
        {"1,1,1,1,1,1", "must have 5 fields"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        row r;
        assert_fails(read_row(cases[i].line, &r), GW_ERR_INPUT, "here, line 2: ");
        assert_message(cases[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends_of_ranges),
                                       cmocka_unit_test(test_blank),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
