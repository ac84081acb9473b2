/** The command line of the program `gpt`. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include "model.h"

typedef struct gpt_options {
    const char *text;
    gpt_shape shape; /* but for the vocabulary, which is the text's */
    int batch;       /* sequences over all ranks */
    long steps, warmup, every, held, windows;
    double rate;
    uint64_t seed;
    char gradwire[1024]; /* the words behind -- */
} gpt_options;

/** 0; or -1, and `message` says what is wrong. `message` is empty if only help was asked for. */
int gpt_options_read(gpt_options *o, int argc, char **argv, char *message, size_t room);

/** The text of --help. */
extern const char gpt_options_help[];

#endif
