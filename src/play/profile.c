#include "play/profile.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 64 << 20, MOST_TENSORS = 1 << 14, MOST_DIMS = 8, SHOWN = 60 };
#define MOST_S   3600
#define MOST_STD 1e30

/* ---- profiles by name: those that came with the program ---- */

/* From the program's folder: where it is installed, and where it is built. */
static const char *const folders[] = {"../share/gradwire/profiles", "../../profiles"};
static const char suffix[] = ".json";

static bool profile_folder(char *folder, size_t cap) {
    char here[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", here, sizeof here - 1);
    here[n > 0 ? n : 0] = '\0';
    char *end = strrchr(here, '/');
    if (end)
        *end = '\0';
    for (size_t i = 0; end && i < sizeof folders / sizeof *folders; i++) {
        gw_text_print(folder, cap, "%s/%s", here, folders[i]);
        if (access(folder, R_OK) == 0)
            return true;
    }
    return false;
}

static int profile_match(const struct dirent *entry) {
    const char *dot = strchr(entry->d_name, '.');
    return dot && dot > entry->d_name && strcmp(dot, suffix) == 0;
}

gw_err gw_step_profile_find(char path[PATH_MAX], const char *name) {
    char folder[PATH_MAX] = "", names[512] = "";
    struct dirent **found = NULL;
    size_t n = strlen(name);
    bool file =
        strchr(name, '/') || (n > strlen(suffix) && strcmp(name + n - strlen(suffix), suffix) == 0);
    gw_text_copy(path, PATH_MAX, name);
    if (file || access(name, F_OK) == 0 || !profile_folder(folder, sizeof folder))
        return GW_OK;
    gw_text_print(path, PATH_MAX, "%s/%s%s", folder, name, suffix);
    if (access(path, F_OK) == 0)
        return GW_OK;
    int all = scandir(folder, &found, profile_match, alphasort);
    for (int i = 0; i < all; i++) {
        size_t at = strlen(names);
        gw_text_print(names + at, sizeof names - at, "%s%.*s", i ? ", " : "",
                      (int)strcspn(found[i]->d_name, "."), found[i]->d_name);
        free(found[i]);
    }
    free(found);
    return gw_fail(GW_ERR_INPUT,
                   "%s: no such file, and no profile of that name: name one of %s, or a file", name,
                   names);
}

/* ---- faults ---- */

/* Where a fault is. */
typedef struct place {
    const char *path;
    int tensor; /* -1: none */
    const char *name;
} place;

/* "PATH: tensor 3 (name): KEY: VALUE: must be .." */
__attribute__((format(printf, 4, 5))) static gw_err
profile_fault(const place *at, const char *key, const json_t *value, const char *format, ...) {
    char who[192] = "", why[256], shown[SHOWN + 8] = "";
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (at->tensor >= 0)
        snprintf(who, sizeof who, at->name ? "tensor %d (%s): " : "tensor %d: ", at->tensor,
                 at->name);
    if (text)
        gw_text_print(shown, sizeof shown, "%.*s%s: ", SHOWN, text,
                      strlen(text) > SHOWN ? ".." : "");
    free(text);
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    return gw_fail(GW_ERR_INPUT, "%s: %s%s: %s%s", at->path, who, key, shown, why);
}

/* ---- values ---- */

typedef enum kind { TEXT, TEXT_OR_NULL, WHOLE, NUMBER, DATE, NAME, SHAPE, TENSORS } kind;

typedef struct field {
    const char *key;
    kind kind;
    double min, max;
    bool may_lack;
} field;

static bool profile_is_line(const char *text) {
    char copy[4 * 200 + 4];
    size_t n = 0;
    for (const char *c = text; *c; c++)
        n += ((unsigned char)*c & 0xc0) != 0x80;
    if (n < 1 || n > 200)
        return false;
    gw_text_copy(copy, sizeof copy, text);
    gw_text_line(copy);
    return strcmp(copy, text) == 0;
}

static bool profile_is_date(const char *text) {
    static const char form[] = "dddd-dd-dd";
    for (size_t i = 0; i < sizeof form; i++)
        if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i])
            return false;
    return true;
}

static bool profile_is_name(const char *text) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    size_t n = strlen(text);
    return n >= 1 && n <= 127 && strspn(text, letters) == n;
}

static bool profile_is_shape(const json_t *value) {
    size_t dims = json_array_size(value); /* 0: no array */
    long long n = 1;
    for (size_t i = 0; i < dims; i++) {
        const json_t *dim = json_array_get(value, i);
        long long size = json_integer_value(dim);
        if (!json_is_integer(dim) || size < 1 || size > INT_MAX / n)
            return false;
        n *= size;
    }
    return dims >= 1 && dims <= MOST_DIMS;
}

static gw_err profile_check_value(const place *at, const field *f, const json_t *value) {
    const char *text = json_string_value(value); /* NULL: no text */
    double x = json_number_value(value);
    switch (f->kind) {
    case TEXT_OR_NULL:
        if (json_is_null(value))
            return GW_OK; /* fall through */
    case TEXT:
        return text && profile_is_line(text)
                   ? GW_OK
                   : profile_fault(at, f->key, value, "must be a text of 1 to 200 characters%s",
                                   f->kind == TEXT ? "" : ", or null");
    case DATE:
        return text && profile_is_date(text)
                   ? GW_OK
                   : profile_fault(at, f->key, value, "must be a date such as 2026-11-24");
    case NAME:
        return text && profile_is_name(text)
                   ? GW_OK
                   : profile_fault(at, f->key, value,
                                   "must be 1 to 127 letters, digits and _ . / -");
    case WHOLE:
        return json_is_integer(value) && x >= f->min && x <= f->max
                   ? GW_OK
                   : profile_fault(at, f->key, value, "must be a whole number from %.0f to %.0f",
                                   f->min, f->max);
    case NUMBER:
        return json_is_number(value) && x >= f->min && x <= f->max
                   ? GW_OK
                   : profile_fault(at, f->key, value, "must be a number from %g to %g", f->min,
                                   f->max);
    case SHAPE:
        return profile_is_shape(value)
                   ? GW_OK
                   : profile_fault(at, f->key, value,
                                   "must be a list of 1 to %d sizes from 1 on, of at most 2^31 - 1 "
                                   "elements",
                                   MOST_DIMS);
    default:
        return json_array_size(value) >= 1 && json_array_size(value) <= MOST_TENSORS
                   ? GW_OK
                   : profile_fault(at, f->key, NULL, "must be a list of 1 to %d tensors",
                                   MOST_TENSORS);
    }
}

/* Every key is known and has a value that it may have, and none is lacking. */
static gw_err profile_check(const place *at, const field *fields, json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char shown[64];
        gw_text_copy(shown, sizeof shown, key);
        const field *f = fields;
        while (f->key && strcmp(f->key, key) != 0)
            f++;
        if (!f->key)
            return profile_fault(at, shown, NULL, "unknown key: remove it");
        GW_TRY(profile_check_value(at, f, value));
    }
    for (const field *f = fields; f->key; f++)
        if (!f->may_lack && !json_object_get(object, f->key))
            return profile_fault(at, f->key, NULL, "is missing: add it");
    return GW_OK;
}

/* ---- tensors ---- */

static const field of_tensor[] = {
    {.key = "name", .kind = NAME},
    {.key = "shape", .kind = SHAPE},
    {.key = "group", .kind = WHOLE, .max = MOST_TENSORS - 1},
    {.key = "forward_s", .kind = NUMBER, .max = MOST_S},
    {.key = "backward_s", .kind = NUMBER, .max = MOST_S},
    {.key = "std", .kind = NUMBER, .max = MOST_STD},
    {.key = "activation", .kind = WHOLE, .min = 1, .max = INT_MAX, .may_lack = true},
    {.key = "shard", .kind = WHOLE, .max = MOST_DIMS - 1, .may_lack = true},
    {.key = "forward_sum", .kind = WHOLE, .min = 1, .max = INT_MAX, .may_lack = true},
    {.key = "forward_gather", .kind = WHOLE, .min = 1, .max = INT_MAX, .may_lack = true},
    {.key = "backward_sum", .kind = WHOLE, .min = 1, .max = INT_MAX, .may_lack = true},
    {.key = "input_parts", .kind = WHOLE, .min = 1, .max = INT_MAX, .may_lack = true},
    {.key = NULL}};

static double profile_number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static gw_step_tensor profile_tensor(const json_t *object) {
    const json_t *shape = json_object_get(object, "shape"),
                 *shard = json_object_get(object, "shard");
    gw_step_tensor t = {.name = json_string_value(json_object_get(object, "name")),
                        .group = (int)profile_number(object, "group"),
                        .n = 1,
                        .forward_s = profile_number(object, "forward_s"),
                        .backward_s = profile_number(object, "backward_s"),
                        .std = profile_number(object, "std"),
                        .activation = (size_t)profile_number(object, "activation"),
                        .forward_sum = (size_t)profile_number(object, "forward_sum"),
                        .forward_gather = (size_t)profile_number(object, "forward_gather"),
                        .backward_sum = (size_t)profile_number(object, "backward_sum"),
                        .input_parts = (size_t)profile_number(object, "input_parts")};
    for (size_t i = 0; i < json_array_size(shape); i++)
        t.n *= (size_t)json_integer_value(json_array_get(shape, i));
    if (json_array_size(shape) > 1)
        t.rows = (size_t)json_integer_value(json_array_get(shape, 0));
    if (shard)
        t.shard =
            (size_t)json_integer_value(json_array_get(shape, (size_t)json_integer_value(shard)));
    t.shard_rows = t.rows > 0 && json_integer_value(shard) == 0;
    return t;
}

/* names: those of the tensors before it. */
static gw_err profile_add_tensor(gw_step_profile *p, place *at, json_t *object, json_t *names) {
    at->tensor = p->n_tensors;
    at->name = NULL;
    if (!json_is_object(object))
        return profile_fault(at, "tensors", object, "must be an object with name, shape, ..");
    const char *name = json_string_value(json_object_get(object, "name"));
    at->name = name && profile_is_name(name) ? name : NULL;
    GW_TRY(profile_check(at, of_tensor, object));
    gw_step_tensor t = profile_tensor(object);
    if (json_object_get(object, "shard") && t.shard == 0)
        return profile_fault(at, "shard", json_object_get(object, "shard"),
                             "must be one of the %zu dimensions of its shape, from 0 on",
                             json_array_size(json_object_get(object, "shape")));
    int last = p->groups - 1;
    if (t.group != last + 1 && (t.group != last || last < 0))
        return profile_fault(at, "group", json_object_get(object, "group"),
                             last < 0 ? "must be 0: groups rise from 0"
                                      : "must be %d or %d: groups rise from 0, each by 1",
                             last, last + 1);
    if (t.group == last && p->tensor[p->n_tensors - 1].activation)
        return profile_fault(at, "group", json_object_get(object, "group"),
                             "the tensor before it has an activation, which stands at a group's "
                             "last tensor");
    size_t all = t.backward_sum, parts = t.input_parts; /* of the group's input, by its tensors */
    for (int i = p->n_tensors - 1; i >= 0 && p->tensor[i].group == t.group; i--) {
        all |= p->tensor[i].backward_sum;
        parts |= p->tensor[i].input_parts;
    }
    if (all && parts)
        return profile_fault(at, "input_parts", NULL,
                             "stands in a group with a backward_sum: tensor ranks have all of a "
                             "group's input, or parts of it: give one of both");
    if (json_object_get(names, name))
        return profile_fault(at, "name", NULL, "stands at tensor %d already: names must differ",
                             (int)json_integer_value(json_object_get(names, name)));
    if (json_object_set_new(names, name, json_integer(p->n_tensors)) != 0)
        return gw_fail(GW_ERR_NOMEM, "%s: out of memory", at->path);
    p->tensor[p->n_tensors++] = t;
    p->groups = t.group + 1;
    p->n += t.n;
    p->forward_s += t.forward_s;
    p->backward_s += t.backward_s;
    return GW_OK;
}

/* ---- the file ---- */

static const field of_profile[] = {
    {.key = "schema", .kind = WHOLE, .min = 1, .max = 1},
    {.key = "model", .kind = TEXT},
    {.key = "source", .kind = TEXT},
    {.key = "device", .kind = TEXT},
    {.key = "machine", .kind = TEXT},
    {.key = "date", .kind = DATE},
    {.key = "torch", .kind = TEXT_OR_NULL},
    {.key = "threads", .kind = WHOLE, .min = 1, .max = 4096},
    {.key = "batch", .kind = WHOLE, .min = 1, .max = 1e6},
    {.key = "steps", .kind = WHOLE, .min = 1, .max = 1e6, .may_lack = true},
    {.key = "optimizer_s", .kind = NUMBER, .max = MOST_S},
    {.key = "tensors", .kind = TENSORS},
    {.key = NULL}};

gw_err gw_step_profile_read(gw_step_profile *p, const char *path) {
    char file[PATH_MAX], *text;
    size_t len;
    json_error_t why;
    *p = (gw_step_profile){0};
    GW_TRY(gw_step_profile_find(file, path));
    GW_TRY(gw_file_read(file, MOST_BYTES, &text, &len));
    json_t *document = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!document)
        return gw_fail(GW_ERR_INPUT, "%s:%d: not JSON: %s", file, why.line, why.text);
    return gw_step_profile_take(p, document, file);
}

gw_err gw_step_profile_take(gw_step_profile *p, json_t *of, const char *name) {
    place at = {.path = name, .tensor = -1};
    *p = (gw_step_profile){.document = of};
    if (!json_is_object(of))
        return gw_fail(GW_ERR_INPUT, "%s: must be an object with schema, model, .., tensors", name);
    GW_TRY(profile_check(&at, of_profile, of));
    p->model = json_string_value(json_object_get(of, "model"));
    p->source = json_string_value(json_object_get(of, "source"));
    p->device = json_string_value(json_object_get(of, "device"));
    p->machine = json_string_value(json_object_get(of, "machine"));
    p->date = json_string_value(json_object_get(of, "date"));
    p->torch = json_string_value(json_object_get(of, "torch"));
    p->threads = (long)profile_number(of, "threads");
    p->batch = (long)profile_number(of, "batch");
    p->optimizer_s = profile_number(of, "optimizer_s");
    json_t *list = json_object_get(of, "tensors"), *names = json_object();
    gw_err e = names ? gw_alloc(&p->tensor, json_array_size(list), sizeof *p->tensor)
                     : gw_fail(GW_ERR_NOMEM, "%s: out of memory", name);
    for (size_t i = 0; e == GW_OK && i < json_array_size(list); i++)
        e = profile_add_tensor(p, &at, json_array_get(list, i), names);
    json_decref(names);
    /* Only a loss reads what is gathered behind a product. */
    for (at.tensor = 0; e == GW_OK && at.tensor < p->n_tensors; at.tensor++) {
        const gw_step_tensor *t = &p->tensor[at.tensor];
        at.name = t->name;
        if (t->forward_gather && t->group + 1 < p->groups)
            e = profile_fault(&at, "forward_gather", NULL,
                              "must stand in the last group, for the loss: elsewhere let the next "
                              "group gather its input_parts");
    }
    return e;
}

void gw_step_profile_free(gw_step_profile *p) {
    json_decref(p->document);
    free(p->tensor);
    *p = (gw_step_profile){0};
}
