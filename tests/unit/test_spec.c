/* Specs: the tree of a text, and the position at which a wrong one is refused. */
#include "base/args.h"

#include "unit.h"

static gw_spec *parse(const char *text, gw_spec_form form) {
    gw_spec *s = NULL;
    if (gw_spec_parse(&s, "train", "compress", text, form) != GW_OK)
        fail_msg("%s: %s", text, gw_err_text());
    assert_string_equal(s->text, text);
    return s;
}

static void is_arg(const gw_spec *s, int i, const char *name, const char *value) {
    assert_true(i < s->n_args);
    assert_string_equal(s->arg[i].name, name);
    assert_string_equal(s->arg[i].value, value);
}

static void test_mix(void **state) {
    gw_spec *list = parse("qsgd:bits=4,bucket=512+zlib;layer2=(topk:ratio=(+0.1));h.[0-9].B*=none",
                          GW_SPEC_LIST);
    const gw_spec *first = list->parts, *rule = first->next, *last = rule->next;
    assert_string_equal(first->text, "qsgd:bits=4,bucket=512+zlib");
    assert_string_equal(first->parts->name, "qsgd");
    is_arg(first->parts, 0, "bits", "4");
    is_arg(first->parts, 1, "bucket", "512");
    assert_string_equal(first->parts->next->text, "zlib");
    assert_null(first->parts->next->next);
    assert_string_equal(rule->key, "layer2");
    assert_string_equal(rule->name, rule->text); /* where an entry is wanted, it is none */
    assert_string_equal(rule->parts->name, "topk");
    is_arg(rule->parts, 0, "ratio", "+0.1");
    assert_string_equal(last->key, "h.[0-9].B*");
    assert_string_equal(last->parts->text, "none");
    assert_null(last->next);
    gw_spec_free(list);
}

/* What only looks like a rule: the path of a plugin, and an argument. */
static void test_no_rules(void **state) {
    gw_spec *list = parse("./a=b.so:x=1;qsgd:bits=4", GW_SPEC_LIST);
    assert_null(list->parts->key);
    is_arg(list->parts, 0, "x", "1");
    assert_null(list->parts->next->key);
    gw_spec_free(list);
}

static void test_commas(void **state) {
    static const char *const same[] = {"sra,(ring:chunk=64K,window=4),tree",
                                       "sra;ring:chunk=64K,window=4;tree"};
    for (int i = 0; i < 2; i++) {
        gw_spec *list = parse(same[i], GW_SPEC_COMMAS);
        const gw_spec *ring = list->parts->next;
        assert_string_equal(ring->name, "ring");
        assert_int_equal(ring->n_args, 2);
        assert_string_equal(ring->next->text, "tree");
        gw_spec_free(list);
    }
}

/* An entry alone, or with stages behind it; a list's separators mean nothing. */
static void test_chain(void **state) {
    gw_spec *one = parse("topk:ratio=1e+2", GW_SPEC_CHAIN);
    assert_null(one->parts);
    assert_string_equal(one->name, "topk");
    is_arg(one, 0, "ratio", "1e+2");
    gw_spec_free(one);
    gw_spec *two = parse("qsgd:bits=4+zlib", GW_SPEC_CHAIN);
    is_arg(two->parts, 0, "bits", "4");
    assert_string_equal(two->parts->next->name, "zlib");
    assert_null(two->parts->next->next);
    gw_spec_free(two);
    gw_spec *none = parse("topk;layer0=none", GW_SPEC_CHAIN);
    assert_string_equal(none->name, "topk;layer0=none");
    gw_spec_free(none);
}

/* An argument that is a spec becomes its own tree; in it, a list's separators mean nothing. */
static void test_nested(void **state) {
    static const gw_opt opts[] = {{"algo", GW_OPT_SPEC, "", 0, 0, NULL, NULL, ""},
                                  {"codecs", GW_OPT_SPECS, NULL, 0, 0, NULL, NULL, ""},
                                  {0}};
    gw_spec *s =
        parse("allreduce:algo=(auto:table=/a;b+c.csv,budget=1),codecs=(x;y:z=1)", GW_SPEC_ONE);
    gw_args *args = NULL;
    assert_int_equal(gw_args_of(&args, opts, s->name, s), GW_OK);
    gw_spec_free(s);
    is_arg(gw_args_spec(args, "algo"), 0, "table", "/a;b+c.csv");
    assert_string_equal(gw_args_spec(args, "codecs")->parts->next->name, "y");
    assert_int_equal(gw_args_set(args, "sra", "algo", ""), GW_ERR_USAGE);
    assert_string_equal(gw_args_spec(args, "algo")->name, "auto"); /* as before */
    assert_int_equal(gw_args_set(args, "sra", "codecs", ""), GW_ERR_USAGE);
    gw_args_free(args);
}

static void test_twice(void **state) {
    static const gw_opt opts[] = {{"bits", GW_OPT_INT, "4", 1, 8, NULL, NULL, ""}, {0}};
    gw_spec *s = parse("qsgd:bits=2,bits=4", GW_SPEC_ONE);
    gw_args *args = NULL;
    assert_int_equal(gw_args_of(&args, opts, s->name, s), GW_ERR_USAGE);
    assert_string_equal(gw_err_text(), "qsgd: bits is given twice: remove one");
    gw_spec_free(s);
}

static void test_refused(void **state) {
    static const struct {
        const char *text, *says;
    } bad[] = {{"qsgd;(topk", "character 6 has no partner"},
               {"qsgd);x", "character 5 has no partner"},
               {"qsgd;;x", "an empty item"},
               {"qsgd;()", "an empty item"},
               {"qsgd:bits=4,bucket", "qsgd: 'bucket' (at character 13"},
               {"qsgd:=4", "expected name=value"},
               {"layer1=qsgd:4", "expected name=value"},
               {"qsgd+zlib:6", "zlib: '6'"}};
    gw_spec *s = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(gw_spec_parse(&s, "train", "compress", bad[i].text, GW_SPEC_LIST),
                         GW_ERR_USAGE);
        assert_message(bad[i].says);
        assert_null(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mix),    cmocka_unit_test(test_no_rules),
        cmocka_unit_test(test_commas), cmocka_unit_test(test_chain),
        cmocka_unit_test(test_nested), cmocka_unit_test(test_twice),
        cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
