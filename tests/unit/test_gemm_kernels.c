/* The GEMM library's kernel set: is a poor choice seen, mended, reported? Run with the argument
 * "describe", this program mends, then prints library and warning, as gradwire does at its start.
 */
#include "nn/gemm.h"
#include "nn/openblas.h"

#include "unit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

char *openblas_get_corename(void);

/* Stands before OpenBLAS's own. FAKE_CORE=obedient: an OpenBLAS that does not know this CPU, but
 * heeds OPENBLAS_CORETYPE; FAKE_CORE=stubborn: one that heeds nothing. */
char *openblas_get_corename(void) {
    static char prescott[] = "Prescott";
    const char *fake = getenv("FAKE_CORE");
    char *wanted = getenv("OPENBLAS_CORETYPE");
    if (fake)
        return strcmp(fake, "obedient") == 0 && wanted ? wanted : prescott;
    void *next = dlsym(RTLD_NEXT, "openblas_get_corename");
    char *(*real)(void);
    memcpy(&real, &next, sizeof real);
    return real ? real() : NULL;
}

/* argv[3]: the library. */
static int describe(char **argv) {
    gw_gemm_mend(argv);
    if (gw_gemm_allow(argv[3]) != GW_OK)
        return 1;
    const char *warning = gw_gemm_warning();
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    printf("%s|%s|%s|%s", gw_gemm_library(), warning ? warning : "no warning", argv[2], name);
    return 0;
}

static const char *child(const char *environment, const char *library) {
    static char said[1024];
    char self[512], command[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    snprintf(command, sizeof command,
             "env -u OPENBLAS_CORETYPE -u " GW_OPENBLAS_MARKER " %s '%s' describe 'an argument' %s",
             environment, self, library);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    said[fread(said, 1, sizeof said - 1, out)] = '\0';
    assert_int_equal(pclose(out), 0);
    return said;
}

static void assert_says(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("'%s' lacks '%s'", text, part);
}

static gw_openblas_verdict judge(gw_openblas_facts f, const char **type) {
    f.avx2 = f.avx2 || f.avx512;
    return gw_openblas_judge(&f, type);
}

static void test_fitting_kernels(void **state) {
    const char *type;
    static const char *const best[] = {"SkylakeX", "Cooperlake", "SapphireRapids", "SKYLAKEX"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            judge((gw_openblas_facts){.core = best[i], .dynamic = true, .avx512 = true}, &type),
            GW_OPENBLAS_FINE);
    assert_int_equal(
        judge((gw_openblas_facts){.core = "Zen", .dynamic = true, .avx2 = true}, &type),
        GW_OPENBLAS_FINE);
    assert_int_equal(judge((gw_openblas_facts){.core = "Prescott", .dynamic = true}, &type),
                     GW_OPENBLAS_FINE); /* a CPU with nothing better */
    assert_int_equal(judge((gw_openblas_facts){.core = NULL, .avx512 = true}, &type),
                     GW_OPENBLAS_FINE); /* another library */
}

static void test_poor_kernels(void **state) {
    const char *type;
    static const char *const poor[] = {"Prescott", "Core2", "Nehalem", "Generic", "Haswell", "Zen"};
    for (int i = 0; i < 6; i++) {
        gw_openblas_facts f = {.core = poor[i], .dynamic = true, .avx512 = true};
        assert_int_equal(judge(f, &type), GW_OPENBLAS_MEND);
        assert_string_equal(type, "SkylakeX");
        f.user_core = poor[i];
        assert_int_equal(judge(f, &type), GW_OPENBLAS_USER_WEAK);
        f.mended_from = "Prescott"; /* never a second time */
        assert_int_equal(judge(f, &type), GW_OPENBLAS_STILL_WEAK);
    }
    gw_openblas_facts f = {.core = "Sandybridge", .dynamic = true, .avx2 = true};
    assert_int_equal(judge(f, &type), GW_OPENBLAS_MEND);
    assert_string_equal(type, "Haswell");
    f.dynamic = false; /* only one kernel set inside: a new start would change nothing */
    assert_int_equal(judge(f, &type), GW_OPENBLAS_STILL_WEAK);
}

static bool has_openblas(void) {
    return strstr(gw_gemm_library(), "OpenBLAS");
}

static bool has_avx2(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

static void test_openblas_is_mended(void **state) {
    if (!has_openblas() || !has_avx2())
        skip();
    const char *said = child("FAKE_CORE=obedient", "cblas");
    assert_says(said, ", mended from Prescott)|no warning|an argument|test_gemm_kerne");
    said = child("FAKE_CORE=stubborn", "cblas");
    assert_says(said, "(Prescott, mended from Prescott)|OpenBLAS uses its Prescott kernels");
    if (strstr(gw_gemm_library(), "oneDNN")) /* which can take its place */
        assert_says(child("FAKE_CORE=stubborn", "auto"), "|no warning|");
}

static void test_openblas_of_the_user(void **state) {
    if (!has_openblas() || !has_avx2())
        skip();
    const char *said = child("OPENBLAS_CORETYPE=Prescott", "cblas");
    assert_says(said, "(Prescott)|OPENBLAS_CORETYPE=Prescott makes OpenBLAS use");
}

static void test_dnnl_held_back(void **state) {
    if (!strstr(gw_gemm_library(), "oneDNN") || !has_avx2())
        skip();
    const char *said = child("ONEDNN_MAX_CPU_ISA=SSE41", "dnnl");
    assert_says(said, "(sse41)|oneDNN is held to sse41 kernels");
}

/* Whatever library it is, a plain start on this CPU ends with kernels that fit. */
static void test_plain_start(void **state) {
    const char *said = child("", "auto");
    if (has_avx2())
        assert_says(said, ")|no warning|an argument");
    else
        assert_says(said, "|an argument");
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "describe") == 0)
        return describe(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fitting_kernels),    cmocka_unit_test(test_poor_kernels),
        cmocka_unit_test(test_openblas_is_mended), cmocka_unit_test(test_openblas_of_the_user),
        cmocka_unit_test(test_dnnl_held_back),     cmocka_unit_test(test_plain_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
