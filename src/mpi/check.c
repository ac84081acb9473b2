#include "mpi/check.h"

#include <stdio.h>

gw_err gw_mpi_check(int rc, const char *call) {
    if (__builtin_expect(rc == MPI_SUCCESS, 1))
        return GW_OK;
    char text[MPI_MAX_ERROR_STRING];
    int len = 0;
    if (MPI_Error_string(rc, text, &len) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d", rc);
    /* MPI's text may hold line breaks; an error is one line. */
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return gw_fail(GW_ERR_MPI, "%.*s failed: %s", 60, call, text);
}
