/** A text as a sequence of small numbers, one a character, and where batches begin in it. */
#ifndef GPT_TEXT_H
#define GPT_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct gpt_text {
    uint8_t *at; /* n numbers below `vocabulary` */
    size_t n;
    int vocabulary;
    uint8_t letter[256]; /* which byte a number stands for */
} gpt_text;

/** Read a file. 0, or -1 with errno set; free `at` with free(). */
int gpt_text_read(gpt_text *text, const char *path);

/** Where sequence `number` of a run begins in [0, span), whichever rank asks. */
size_t gpt_text_draw(uint64_t seed, uint64_t number, size_t span);

#endif
