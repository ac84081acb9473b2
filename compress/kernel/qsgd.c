#include "compress/kernel/qsgd.h"

extern const gw_qsgd_level gw_qsgd_portable;

#ifdef GW_X86
extern const gw_qsgd_level gw_qsgd_avx2, gw_qsgd_avx512;
static const gw_qsgd_level *const qsgd_levels[] = {&gw_qsgd_portable, &gw_qsgd_avx2,
                                                   &gw_qsgd_avx512};
#else
static const gw_qsgd_level *const qsgd_levels[] = {&gw_qsgd_portable};
#endif

gw_err gw_qsgd_pick(const gw_qsgd_level **level) {
    gw_simd simd;
    GW_TRY(gw_simd_pick(&simd));
    *level = qsgd_levels[simd];
    return GW_OK;
}
