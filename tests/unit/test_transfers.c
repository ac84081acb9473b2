/* Schedules as data: what is refused, and where the message says it is. */
#include "../play.h"
#include "unit.h"

#include <stdio.h>
#include <string.h>

#define HEAD(ranks, blocks)                                                                        \
    "{\"gradwire_schedule\":1,\"ranks\":" #ranks ",\"blocks\":" #blocks ",\"rounds\":["
#define ADD(from, to, block)                                                                       \
    "{\"from\":" #from ",\"to\":" #to ",\"block\":" #block ",\"op\":\"add\"}"
#define SET(from, to, block)                                                                       \
    "{\"from\":" #from ",\"to\":" #to ",\"block\":" #block ",\"op\":\"set\"}"

static gw_err parse(const char *text) {
    gw_transfers t;
    gw_err e = gw_transfers_read(&t, "x.json", text, strlen(text));
    gw_transfers_clear(&t);
    return e;
}

static void takes_what_is_valid(void **state) {
    static const char *const valid[] = {
        HEAD(2, 1) "[" ADD(0, 1, 0) "],[" SET(1, 0, 0) "]]}",
        HEAD(2, 1) "[],[" ADD(0, 1, 0) "],[],[" SET(1, 0, 0) "],[]]}",
        HEAD(3, 1) "[" ADD(0, 2, 0) "," ADD(1, 2, 0) "],[" SET(2, 0, 0) "," SET(2, 1, 0) "]]}",
        HEAD(3, 1) "[" ADD(0, 1, 0) "],[" ADD(1, 2, 0) "],[" SET(2, 0, 0) "],[" SET(0, 1, 0) "]]}",
        HEAD(2, 2) "[" ADD(0, 1, 0) "," ADD(1, 0, 1) "],[" SET(1, 0, 0) "," SET(0, 1, 1) "]]}",
        "{\"about\":\"x\",\"gradwire_schedule\":1,\"ranks\":2,\"blocks\":3,\"rounds\":[["
        "{\"from\":0,\"to\":1,\"block\":0,\"count\":3,\"op\":\"add\"}],["
        "{\"from\":1,\"to\":0,\"block\":0,\"count\":2,\"op\":\"set\"}," SET(1, 0, 2) "]]}"};
    for (size_t i = 0; i < sizeof valid / sizeof *valid; i++)
        if (parse(valid[i]) != GW_OK)
            fail_msg("%s: %s", valid[i], gw_err_text());
}

static const struct {
    const char *text, *said;
} damaged[] = {
    {"", "line 1: not JSON"},
    {"{\"ranks\":2,\n\"ranks\":2}", "line 2: not JSON: duplicate"},
    {"[]", "must be an object with gradwire_schedule"},
    {"{\"ranks\":2}", "gradwire_schedule is missing"},
    {"{\"gradwire_schedule\":2}", "gradwire_schedule is 2: must be from 1 to 1"},
    {HEAD(2, 1) "],\"chunks\":1}", "unknown key 'chunks'"},
    {HEAD(1, 1) "]}", "ranks is 1: must be from 2 to"},
    {HEAD(2, 0) "]}", "blocks is 0: must be from 1 to 131072"},
    {HEAD(512, 513) "]}", "blocks is 513: must be from 1 to 512"},
    {HEAD(2, "1") "]}", "blocks must be a whole number"},
    {"{\"gradwire_schedule\":1,\"ranks\":2,\"blocks\":1,\"rounds\":{}}", "rounds must be a list"},
    {HEAD(2, 1) "[],3]}", "round 1: must be a list of transfers"},
    {HEAD(2, 1) "[4]]}", "round 0, transfer 0: must be an object with from"},
    {HEAD(2, 1) "[" ADD(0, 2, 0) "]]}", "round 0, transfer 0: to is 2: must be from 0 to 1"},
    {HEAD(2, 1) "[" ADD(-1, 1, 0) "]]}", "from is -1"},
    {HEAD(2, 1) "[" ADD(0, 1, 1) "]]}", "block is 1: must be from 0 to 0"},
    {HEAD(2, 1) "[" ADD(0, 1, 4294967296) "]]}", "block is 4294967296"},
    {HEAD(2, 2) "[{\"from\":0,\"to\":1,\"block\":1,\"count\":2,\"op\":\"add\"}]]}",
     "count is 2: must be from 1 to 1"},
    {HEAD(2, 1) "[" ADD(1, 1, 0) "]]}", "rank 1 sends block 0 to itself"},
    {HEAD(2, 1) "[{\"from\":0,\"to\":1,\"block\":0,\"op\":\"max\"}]]}", "op must be"},
    {HEAD(2, 1) "[{\"from\":0,\"to\":1,\"block\":0}]]}", "op must be"},
    {HEAD(2, 1) "[{\"from\":0,\"to\":1,\"op\":\"add\"}]]}", "block is missing"},
    {HEAD(2, 1) "[{\"from\":0,\"two\":1}]]}", "unknown key 'two'"},
    /* counted twice */
    {HEAD(3, 1) "[" ADD(0, 1, 0) "," ADD(0, 2, 0) "]]}",
     "round 0, transfer 1: rank 0 gave its sum of block 0 away in round 0: given once more"},
    {HEAD(2, 1) "[" ADD(0, 1, 0) "],[" ADD(0, 1, 0) "]]}",
     "round 1, transfer 0: rank 0 gave its sum of block 0 away in round 0: given once more"},
    /* lost */
    {HEAD(3, 2) "[" ADD(0, 1, 1) "," ADD(1, 2, 1) "]]}",
     "round 0, transfer 1: rank 1 gives its sum of block 1 away in the round in which"},
    {HEAD(3, 2) "[" ADD(1, 2, 1) "," ADD(0, 1, 1) "]]}",
     "round 0, transfer 1: rank 1 gives its sum of block 1 away in round 0: what rank 0"},
    {HEAD(2, 1) "[" SET(0, 1, 0) "]]}", "rank 0 has not the whole sum of block 0"},
    {HEAD(3, 1) "[" ADD(0, 1, 0) "],[" SET(1, 2, 0) "]]}", "(2 of 3 contributions)"},
    {HEAD(2, 1) "[" ADD(0, 1, 0) "," SET(1, 0, 0) "]]}",
     "round 0, transfer 1: rank 1 has not the whole sum of block 0 before this round"},
    /* forwarded before it is there */
    {HEAD(3, 1) "[" ADD(0, 2, 0) "," ADD(1, 2, 0) "],[" SET(2, 1, 0) "," SET(1, 0, 0) "]]}",
     "round 1, transfer 1: rank 1 has not the whole sum"},
    /* set twice; added to afterwards */
    {HEAD(2, 1) "[" ADD(0, 1, 0) "],[" SET(1, 0, 0) "],[" SET(1, 0, 0) "]]}",
     "round 2, transfer 0: rank 0 has the whole sum of block 0 already"},
    {HEAD(2, 1) "[" ADD(0, 1, 0) "],[" SET(1, 0, 0) "],[" ADD(1, 0, 0) "]]}",
     "round 2, transfer 0: rank 0 has the whole sum of block 0: nothing may be added"},
    /* recursive doubling: each rank sums in another order, and with a codec other values */
    {HEAD(2, 1) "[" ADD(0, 1, 0) "," ADD(1, 0, 0) "]]}", "round 0, transfer 1: rank 0 gives"},
    {HEAD(4, 1) "[" ADD(0, 1, 0) "," ADD(2, 3, 0) "],[" ADD(1, 3, 0) "," ADD(3, 1, 0) "]]}",
     "round 1, transfer 1"},
    /* unfinished */
    {HEAD(2, 1) "]}", "contributions to block 0 do not come together: at the end rank 0 has 1"},
    {HEAD(3, 1) "[" ADD(0, 1, 0) "]]}", "at the end rank 1 has 2 of 3"},
    {HEAD(2, 2) "[" ADD(0, 1, 0) "," ADD(0, 1, 1) "],[" SET(1, 0, 0) "]]}",
     "x.json: rank 0 never gets the whole sum of block 1"},
};

static void refuses_what_is_damaged(void **state) {
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        if (parse(damaged[i].text) != GW_ERR_INPUT || !strstr(gw_err_text(), damaged[i].said) ||
            strncmp(gw_err_text(), "schedule x.json: ", 17) != 0)
            fail_msg("%s\n%s\nmust say: %s", damaged[i].text, gw_err_text(), damaged[i].said);
}

/* Every schedule of four transfers among three ranks of which the first adds rank 0's to rank 1's:
 * what is accepted gives all ranks the same bits, and all that should be is. */
static void keeps_bits_equal(void **state) {
    enum { KINDS = 12, BREAKS = 8 }; /* transfers there are; with or without a new round between */
    int accepted = 0;
    for (int n = 0; n < KINDS * KINDS * KINDS * BREAKS; n++) {
        char text[512];
        int rest = n / BREAKS;
        size_t at = (size_t)sprintf(text, HEAD(3, 1) "[" ADD(0, 1, 0));
        for (int i = 0; i < 3; i++, rest /= KINDS) {
            int pair = rest % KINDS / 2, from = pair / 2, to = (from + 1 + pair % 2) % 3;
            at += (size_t)sprintf(text + at, "%s{\"from\":%d,\"to\":%d,\"block\":0,\"op\":\"%s\"}",
                                  n >> i & 1 ? "],[" : ",", from, to, rest % 2 ? "add" : "set");
        }
        sprintf(text + at, "]]}");
        gw_transfers t;
        if (gw_transfers_read(&t, "x.json", text, strlen(text)) == GW_OK) {
            accepted++;
            if (!play(&t))
                fail_msg("accepted: %s", text);
        }
        gw_transfers_clear(&t);
    }
    /* To rank 1 in one round or two, or by it to rank 2; back in one round, in two or forwarded. */
    assert_int_equal(accepted, (2 + 1) * (2 + 2 + 2));
}

static void refuses_files(void **state) {
    gw_transfers t;
    assert_int_equal(gw_transfers_load(&t, "/nonesuch.json"), GW_ERR_INPUT);
    gw_transfers_clear(&t);
    assert_int_equal(gw_transfers_load(&t, "/dev"), GW_ERR_INPUT);
    gw_transfers_clear(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_what_is_valid), cmocka_unit_test(refuses_what_is_damaged),
        cmocka_unit_test(keeps_bits_equal), cmocka_unit_test(refuses_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
