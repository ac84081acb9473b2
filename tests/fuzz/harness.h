/** What several targets need: files in memory, edits of texts that are right, and the promise that
 *  every error keeps. */
#ifndef GW_TESTS_FUZZ_HARNESS_H
#define GW_TESTS_FUZZ_HARNESS_H

#include "fuzz.h"

enum { GW_FUZZ_FILES = 4 };

/** A folder whose files lie in memory (memfd), so that inputs cost no disk. */
typedef struct gw_fuzz_folder {
    char path[64];
    const char *const *name;
    int files, fd[GW_FUZZ_FILES];
} gw_fuzz_folder;

void gw_fuzz_folder_open(gw_fuzz_folder *f, const char *const *name, int files);
/** The i-th file's whole content from now on. */
void gw_fuzz_folder_put(gw_fuzz_folder *f, int i, const void *data, size_t size);
void gw_fuzz_folder_close(gw_fuzz_folder *f);

/** Forget the last message, so that an error without one of its own is noticed. */
void gw_fuzz_forget(void);

/** `e` is GW_OK, or an error that says so in one line of printable UTF-8 and is the user's to mend:
 *  memory that ran out is none, for then a claim of the input was allocated. */
void gw_fuzz_answer(gw_err e);

/** A copy of `text`, malloced and 0-terminated, with edits: 4 bytes of `edits` each, where (16-bit,
 *  modulo its length), what (flip a bit, set a byte, cut some bytes out, put a word in, double
 *  some), and with what. `words` as in gw_fuzz_target. */
char *gw_fuzz_edited(const char *text, const uint8_t *edits, size_t n, const char *const *words);

#endif
