/* Formulas: what they yield, and what is refused where. */
#include "counters/expr.h"

#include "unit.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"a", "b", "stalls_1"};
static const double values[] = {6, 4, 0.5};

static double value_of(const char *text) {
    gw_expr e;
    assert_int_equal(gw_expr_parse(&e, text, names, 3), GW_OK);
    return gw_expr_value(&e, values);
}

static void test_values(void **state) {
    const struct {
        const char *text;
        double value;
    } cases[] = {
        {"7", 7},
        {" a ", 6},
        {"a - b - 1", 1},
        {"a / b / 2", 0.75},
        {"1 + a * b", 25},
        {"(1 + a) * b", 28},
        {"-a + 10", 4},
        {"- -a", 6},
        {"2 * -b", -8},
        {"min(a, b)", 4},
        {"max(a, b) * 2", 12},
        {"min(1, a / (6 * b) * min(1, stalls_1 / max(1, b)))", 0.03125},
        {"1e3 * .5", 500},
        {"max(min(3, a), -b)", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double got = value_of(cases[i].text);
        if (fabs(got - cases[i].value) > 1e-15)
            fail_msg("%s is %g, not %g", cases[i].text, got, cases[i].value);
    }
}

/* A rate of nothing is not known; what is not known stays so, in min and max, too. */
static void test_unknown(void **state) {
    assert_true(isnan(value_of("0 / 0")));
    assert_true(isnan(value_of("a / (b - 4)")));
    assert_true(isnan(value_of("min(1, a / 0)")));
    assert_true(isnan(value_of("min(a / 0, 1)")));
    assert_true(isnan(value_of("max(1, a / 0)")));
    assert_true(isnan(value_of("max(a / 0, 1)")));
    assert_true(isnan(gw_expr_value(&(gw_expr){0}, values)));
}

static void test_uses(void **state) {
    gw_expr e;
    assert_int_equal(gw_expr_parse(&e, "min(a, 3) / stalls_1", names, 3), GW_OK);
    assert_true(gw_expr_uses(&e, 0));
    assert_false(gw_expr_uses(&e, 1));
    assert_true(gw_expr_uses(&e, 2));
}

static void test_refused(void **state) {
    const struct {
        const char *text, *what;
    } cases[] = {
        {"", "character 1"},
        {"a +", "character 4"},
        {"a b", "an operator expected at character 3"},
        {"(a", "')' expected at character 3"},
        {"a)", "an operator expected at character 2"},
        {"min(a)", "',' expected at character 6"},
        {"min a", "'(' expected at character 5"},
        {"ab", "not the name of an event at character 1"},
        {"a + cycles", "not the name of an event at character 5"},
        {"stalls", "not the name of an event at character 1"},
        {"1e999", "no number at character 1"},
        {"a ^ b", "an operator expected at character 3"},
        {"*a", "expected at character 1"},
    };
    gw_expr e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(gw_expr_parse(&e, cases[i].text, names, 3), GW_ERR_INPUT);
        assert_message(cases[i].what);
    }
}

/* However long and deep, a formula is refused, not run into. */
static void test_limits(void **state) {
    char text[4096];
    gw_expr e;
    memset(text, '(', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_fails(gw_expr_parse(&e, text, names, 3), GW_ERR_INPUT, "nested too deep");
    memset(text, '-', sizeof text - 1);
    assert_fails(gw_expr_parse(&e, text, names, 3), GW_ERR_INPUT, "nested too deep");
    *text = '\0';
    for (int i = 0; i < GW_EXPR_STEPS; i++)
        strcat(text, i ? "+a" : "a");
    assert_fails(gw_expr_parse(&e, text, names, 3), GW_ERR_INPUT, "too long");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_unknown), cmocka_unit_test(test_uses),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
