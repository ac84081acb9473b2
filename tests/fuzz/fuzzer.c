/* The two functions that libFuzzer calls, for the target in GW_FUZZ_TARGET. */
#include "fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const gw_fuzz_target GW_FUZZ_TARGET;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *spec = getenv("GW_FUZZ_SPEC");
    if (GW_FUZZ_TARGET.each && !(spec && *spec))
        gw_fuzz_stop("GW_FUZZ_SPEC must name one of its kinds", GW_FUZZ_TARGET.name);
    if (GW_FUZZ_TARGET.open)
        GW_FUZZ_TARGET.open(spec ? spec : "");
    if (GW_FUZZ_TARGET.close)
        atexit(GW_FUZZ_TARGET.close); /* libFuzzer has no entry for the end */
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GW_FUZZ_TARGET.one(data, size);
    return 0;
}
