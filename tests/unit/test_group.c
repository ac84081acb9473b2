/* Event groups: the files in the program, the CPUs they are for, and bad files. */
#include "counters/group.h"

#include "folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gw_cpu nothing = {.family = -1, .model = -1, .implementer = -1, .part = -1};

/* Each file parses; a cycle without stalls is not memory-bound, one full of them is, and every
 * figure has a value. */
static void test_shipped(void **state) {
    assert_true(gw_group_text_count >= 7);
    static gw_group_choice c;
    for (int i = 0; i < gw_group_text_count; i++) {
        bool fits = true;
        const gw_group_text *t = &gw_group_texts[i];
        assert_ok(gw_group_parse(&c, &fits, &nothing, t->name, t->text));
        assert_false(fits); /* none is for a CPU that says nothing */
        int with_memory = 0;
        for (int g = 0; g < c.groups; g++) {
            const gw_group *group = &c.group[g];
            assert_in_range(group->events, 1, GW_GROUP_HARDWARE);
            double quiet[GW_GROUP_EVENTS], busy[GW_GROUP_EVENTS];
            for (int k = 0; k < group->events; k++) {
                bool rate = group->event[k].sanity == GW_SANITY_CYCLES;
                quiet[k] = rate ? 1000 : 0;
                busy[k] = 1000;
            }
            busy[0] = 1000; /* cycles or slots lead every group */
            if (group->memory.steps) {
                with_memory++;
                assert_true(gw_expr_value(&group->memory, quiet) == 0);
                double most = gw_expr_value(&group->memory, busy);
                assert_true(most > 0.1 && most <= 1);
            }
            for (int k = 0; k < group->figures; k++)
                assert_true(isfinite(gw_expr_value(&group->figure[k].value, busy)));
        }
        assert_int_equal(with_memory, 1);
    }
}

/* Formulas on numbers by hand. */
static void test_formulas(void **state) {
    static gw_group_choice c;
    const struct {
        const char *name;
        double values[4], memory;
        gw_bound bound;
    } cases[] = {
        /* slots, memory slots, backend slots, cycles */
        {"intel-spr", {6e6, 1.5e6, 2e6, 1e6}, 0.25, GW_BOUND_NONE},
        /* cycles, load stalls, store stalls, L3-miss stalls */
        {"intel-icx", {1e6, 3e5, 1e5, 2e5}, 0.4, GW_BOUND_NONE},
        /* cycles, backend slots, load waits, waits: 3e6 / 6e6 * 3/4 */
        {"amd-zen4", {1e6, 3e6, 3e5, 4e5}, 0.375, GW_BOUND_NONE},
        {"amd-zen4", {1e6, 3e6, 0, 0}, 0, GW_BOUND_NONE},
        /* cycles, load queue, store queue, retire queue */
        {"amd-zen3", {1e6, 2e5, 1e5, 4e5}, 0.3, GW_BOUND_LOWER},
        {"amd-zen2", {1e6, 2e5, 1e5, 4e5}, 0.3, GW_BOUND_LOWER},
        /* cycles, memory stalls, backend stalls, instructions */
        {"arm-neoverse-v", {1e6, 6e5, 7e5, 1e6}, 0.6, GW_BOUND_NONE},
        /* cycles, backend stalls, instructions, refills */
        {"arm-neoverse-n1", {1e6, 7e5, 1e6, 1e3}, 0.7, GW_BOUND_UPPER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_group_choice *chosen = NULL;
        char name[64];
        snprintf(name, sizeof name, "%s/memory", cases[i].name);
        assert_int_equal(gw_group_choose(&chosen, name, NULL), GW_OK);
        c = *chosen;
        free(chosen);
        assert_int_equal(c.groups, 1);
        assert_true(c.named);
        assert_int_equal(c.group[0].bound, cases[i].bound);
        double got = gw_expr_value(&c.group[0].memory, cases[i].values);
        if (fabs(got - cases[i].memory) > 1e-12)
            fail_msg("%s: %g, not %g", name, got, cases[i].memory);
    }
}

/* Which file a CPU gets, by what /proc/cpuinfo says of it. */
static void test_cpus(void **state) {
    const struct {
        const char *cpuinfo, *file;
    } cases[] = {
        {"processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
         "model name\t: Intel(R) Xeon(R) Platinum 8480+\n",
         "intel-spr"},
        {"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\n", "intel-spr"},
        {"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n", "intel-icx"},
        {"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n", NULL},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49\n", "amd-zen2"},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 1\n", NULL},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n", "amd-zen3"},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 33\n", "amd-zen3"},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n", "amd-zen4"},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 97\n", "amd-zen4"},
        {"processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
         "CPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n",
         "arm-neoverse-n1"},
        {"CPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "arm-neoverse-v"},
        {"CPU implementer\t: 0x41\nCPU part\t: 0xd49\n", "arm-neoverse-v"},
        {"CPU implementer\t: 0x48\nCPU part\t: 0xd0c\n", NULL},
        {"", NULL},
    };
    static gw_group_choice c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_cpu cpu = gw_cpu_read(put_text("cpuinfo", cases[i].cpuinfo));
        int found = 0;
        for (int t = 0; t < gw_group_text_count; t++) {
            bool fits = false;
            const gw_group_text *text = &gw_group_texts[t];
            assert_int_equal(gw_group_parse(&c, &fits, &cpu, text->name, text->text), GW_OK);
            found += fits;
            if (fits != (cases[i].file && strcmp(cases[i].file, text->name) == 0))
                fail_msg("case %zu: %s %s", i, text->name, fits ? "fits" : "does not fit");
        }
        assert_int_equal(found, cases[i].file != NULL);
    }
}

#define HEAD "cpu family=6\ngroup g\nevent c cycles = C\n"

/* Every mistake is told with its line. */
static void test_bad_files(void **state) {
    const struct {
        const char *text, *says;
    } cases[] = {
        {"", "f: no group in it"},
        {"# nothing\n\n", "f: no group in it"},
        {"group g\n", "f: group g has no events"},
        {"grup g\n", "f: line 1: 'grup': must be cpu, group, event, memory or figure"},
        {"cpu\n", "f: line 1: cpu: KEY=LIST expected"},
        {"cpu family\n", "f: line 1: 'family': KEY=LIST expected"},
        {"cpu stepping=1\n", "f: line 1: 'stepping': must be vendor, family, model, implementer"},
        {"cpu model=x\n", "f: line 1: 'x': numbers and ranges"},
        {"cpu model=1,\n", "f: line 1: '1,': numbers and ranges"},
        {"cpu model=5-3\n", "f: line 1: '5-3': a range needs two numbers"},
        {"cpu model=1;2\n", "f: line 1: '1;2': numbers and ranges"},
        {"\nevent c cycles = C\n", "f: line 2: event before the first group"},
        {"group 1\n", "f: line 1: group '1': a name"},
        {HEAD "group g\n", "f: line 4: group g is there already"},
        {HEAD "event d cycles\n", "f: line 4: event NAME CHECK = PAPI-NAME expected"},
        {HEAD "event d cycle = D\n", "f: line 4: event d: check 'cycle': must be cycles"},
        {HEAD "event c cycles = D\n", "f: line 4: event c is in group g already"},
        {HEAD "event max cycles = D\n", "f: line 4: event 'max': a name"},
        {HEAD "event d any = \n", "f: line 4: event d: '' is not the name of a PAPI event"},
        {HEAD "event d any = A | | B\n", "f: line 4: event d: '' is not the name of a PAPI event"},
        {HEAD "event d any = A|B|C|D|E\n", "f: line 4: event d: more than 4 names"},
        {HEAD "event d any=D\nevent e any=E\nevent f any=F\nevent h any=H\n",
         "f: line 7: more than 4 events in group g"},
        {HEAD "memory = stalls / c\n",
         "f: line 4: formula 'stalls / c': not the name of an event at character 1"},
        {HEAD "memory about = c\n", "f: line 4: memory 'about': must be lower, upper or nothing"},
        {HEAD "memory c\n", "f: line 4: memory = FORMULA expected"},
        {HEAD "memory = c\nmemory = c\n", "f: line 5: group g has a memory formula already"},
        {HEAD "figure = c\n", "f: line 4: figure '': a name"},
        {HEAD "figure x = c +\n", "f: line 4: formula 'c +': a number"},
        {HEAD "figure a=c\nfigure b=c\nfigure d=c\nfigure e=c\nfigure f=c\n",
         "f: line 8: more than 4 figures"},
    };
    static gw_group_choice c;
    bool fits;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(gw_group_parse(&c, &fits, &nothing, "f", cases[i].text), GW_ERR_INPUT);
        assert_message(cases[i].says);
    }
    char line[2048];
    memset(line, ' ', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    assert_fails(gw_group_parse(&c, &fits, &nothing, "f", line), GW_ERR_INPUT,
                 "line 1: longer than");
}

static void test_choice(void **state) {
    gw_group_choice *c = NULL;
    assert_int_equal(gw_group_choose(&c, "amd-zen4", NULL), GW_OK);
    assert_int_equal(c->groups, 2);
    free(c);
    assert_int_equal(gw_group_choose(&c, "none", NULL), GW_OK);
    assert_int_equal(c->groups, 0);
    assert_false(c->named);
    assert_string_equal(c->reason, "not wanted: --papi-group none");
    free(c);
    assert_int_equal(gw_group_choose(&c, "auto", "perf::A,B:C"), GW_OK);
    assert_int_equal(c->groups, 1); /* the user's own come every batch */
    assert_true(c->named);
    assert_int_equal(c->group[0].events, 2);
    assert_string_equal(c->group[0].event[1].papi[0], "B:C");
    free(c);
    assert_int_equal(gw_group_choose(&c, "intel-icx/traffic", "X"), GW_OK);
    assert_int_equal(c->groups, 2);
    assert_string_equal(c->name, "intel-icx/traffic+events");
    free(c);
    const struct {
        const char *group, *events, *says;
    } bad[] = {
        {"amd-zen9", NULL, "no group 'amd-zen9': must be one of "},
        {"amd-zen4/cache", NULL, "amd-zen4 has no group 'cache'"},
        {"auto", "", "names of events with commas between expected"},
        {"auto", "A,,B", "names of events with commas between expected"},
        {"auto", "A,B,", "names of events with commas between expected"},
        {"auto", "A,B,A", "A is named twice"},
        {"auto", "A,B,C,D,E,F,G,H,I", "more than 8 events"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(gw_group_choose(&c, bad[i].group, bad[i].events), GW_ERR_USAGE);
        assert_message(bad[i].says);
    }
    assert_int_equal(gw_group_choose(&c, "/", NULL), GW_ERR_INPUT); /* a folder */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped), cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_cpus),    cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
