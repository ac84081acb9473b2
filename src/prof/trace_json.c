#include "prof/trace_json.h"

#include "base/file.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LITERAL = 64 /* bytes of a number, true, false or null */, END = -1 };

typedef struct source {
    FILE *in;
    const char *path;
    uint64_t line;
    int ahead; /* a character that was looked at; END - 1: none */
} source;

static gw_err refuse(const source *s, const char *what) {
    char text[128];
    gw_text_plain(text, sizeof text, what);
    return gw_fail(GW_ERR_INPUT, "%s: line %llu: %s: no trace, or a damaged one", s->path,
                   (unsigned long long)s->line, text);
}

static int take(source *s) {
    int c = s->ahead;
    s->ahead = END - 1;
    if (c == END - 1)
        c = getc_unlocked(s->in);
    if (c == '\n')
        s->line++;
    return c == EOF ? END : c;
}

static int look(source *s) {
    if (s->ahead == END - 1) {
        int c = getc_unlocked(s->in);
        s->ahead = c == EOF ? END : c;
    }
    return s->ahead;
}

/* The next character that is no blank, not taken yet. */
static int look_past_blanks(source *s) {
    while (look(s) == ' ' || look(s) == '\n' || look(s) == '\r' || look(s) == '\t')
        take(s);
    return look(s);
}

static gw_err expect(source *s, char c) {
    char what[] = "' ' is missing";
    what[1] = c;
    if (look_past_blanks(s) != c)
        return refuse(s, what);
    take(s);
    return GW_OK;
}

/* For jansson: one character a call, so that it takes none behind the value. */
static size_t give(void *buffer, size_t room, void *ctx) {
    int c = room > 0 ? take(ctx) : END;
    if (c == END)
        return 0;
    *(char *)buffer = (char)c;
    return 1;
}

/* A value that ends with its last character: an object, an array or a string. */
static gw_err closed_value(source *s, json_t **out) {
    json_error_t why;
    *out = json_load_callback(
        give, s, JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    return *out ? GW_OK : refuse(s, why.text);
}

/* A number, true, false or null, which ends where something else begins. */
static gw_err literal(source *s) {
    char text[LITERAL];
    size_t n = 0;
    for (int c = look(s); n < LITERAL && c != END && !strchr(",]} \t\r\n", c); c = look(s))
        text[n++] = (char)take(s);
    json_t *value = n < LITERAL ? json_loadb(text, n, JSON_DECODE_ANY, NULL) : NULL;
    if (!value)
        return refuse(s, "a value is malformed");
    json_decref(value);
    return GW_OK;
}

static gw_err events(source *s, const gw_trace_reader *to) {
    if (look_past_blanks(s) != '[')
        return refuse(s, "\"traceEvents\" is no array");
    take(s);
    if (look_past_blanks(s) == ']') {
        take(s);
        return GW_OK;
    }
    for (;;) {
        if (look_past_blanks(s) != '{')
            return refuse(s, "an event is no object");
        uint64_t line = s->line;
        json_t *event;
        GW_TRY(closed_value(s, &event));
        gw_err e = to->event(to->ctx, event, line);
        json_decref(event);
        GW_TRY(e);
        if (look_past_blanks(s) == ']') {
            take(s);
            return GW_OK;
        }
        GW_TRY(expect(s, ','));
    }
}

static gw_err other(source *s, const gw_trace_reader *to, bool data) {
    int c = look_past_blanks(s);
    if (data && c != '{')
        return refuse(s, "\"otherData\" is no object");
    if (c != '{' && c != '[' && c != '"')
        return literal(s);
    json_t *value;
    GW_TRY(closed_value(s, &value));
    gw_err e = data ? to->other(to->ctx, value) : GW_OK;
    json_decref(value);
    return e;
}

/* "key": value of the outermost object. */
static gw_err member(source *s, const gw_trace_reader *to, bool *found) {
    json_t *text;
    if (look_past_blanks(s) != '"')
        return refuse(s, "a key is missing");
    GW_TRY(closed_value(s, &text));
    bool is_events = strcmp(json_string_value(text), "traceEvents") == 0;
    bool is_data = strcmp(json_string_value(text), "otherData") == 0;
    json_decref(text);
    GW_TRY(expect(s, ':'));
    if (!is_events)
        return other(s, to, is_data);
    if (*found)
        return refuse(s, "\"traceEvents\" comes twice");
    *found = true;
    return events(s, to);
}

static gw_err document(source *s, const gw_trace_reader *to) {
    bool found = false;
    GW_TRY(expect(s, '{'));
    if (look_past_blanks(s) != '}')
        GW_TRY(member(s, to, &found));
    while (look_past_blanks(s) != '}') {
        GW_TRY(expect(s, ','));
        GW_TRY(member(s, to, &found));
    }
    take(s);
    if (look_past_blanks(s) != END)
        return refuse(s, "something follows the end");
    return found ? GW_OK : refuse(s, "\"traceEvents\" is missing");
}

gw_err gw_trace_read(const char *path, const gw_trace_reader *to) {
    source s = {.path = path, .line = 1, .ahead = END - 1};
    size_t len;
    GW_TRY(gw_file_open(path, &s.in, &len));
    gw_err e = document(&s, to);
    if (ferror(s.in))
        e = gw_fail(GW_ERR_INPUT, "%s: cannot be read to its end", path);
    fclose(s.in);
    return e;
}
