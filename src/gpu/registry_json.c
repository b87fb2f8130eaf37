#include "base/json_memory.h"
#include "base/limits.h"
#include "base/mem.h"
#include "gpu/calibration_json.h"
#include "gpu/registry.h"

#include <string.h>

enum { VERSION = 1 };

static const char *const result_names[] = {"unknown", "passed", "failed", "crashed", "hung"};
enum { RESULTS = sizeof result_names / sizeof *result_names };

/* ---- reading --------------------------------------------------------------------------- */

static bool read_result(yyjson_val *value, enum registry_result *out)
{
    for (unsigned i = 0; i < RESULTS; i++) {
        if (yyjson_equals_str(value, result_names[i])) {
            *out = (enum registry_result)i;
            return true;
        }
    }
    return false;
}

static bool registry_json_read_entry(yyjson_val *value, struct registry_entry *out)
{
    *out = (struct registry_entry){0};
    yyjson_val *backend, *device, *driver, *ggml, *result, *reason, *time, *calibration;
    const struct calibration_field fields[] = {
        {"backend", JSON_TEXT, &backend},       {"device", JSON_TEXT, &device},
        {"driver", JSON_TEXT, &driver},         {"ggml", JSON_TEXT, &ggml},
        {"verification", JSON_TEXT, &result},   {"reason", JSON_TEXT, &reason},
        {"verified_unix_s", JSON_COUNT, &time}, {"calibration", JSON_OBJECT_OR_NULL, &calibration},
    };
    if (!json_fields(value, fields, 8))
        return false;
    struct registry_key *key = &out->key;
    out->verified_unix_s = yyjson_get_uint(time);
    out->calibrated = yyjson_is_obj(calibration);
    return json_copy_text(backend, key->backend, sizeof key->backend) &&
           json_copy_text(device, key->device, sizeof key->device) &&
           json_copy_text(driver, key->driver, sizeof key->driver) &&
           json_copy_text(ggml, key->ggml, sizeof key->ggml) && read_result(result, &out->result) &&
           json_copy_text(reason, out->reason, sizeof out->reason) &&
           (!out->calibrated || calibration_from_json(calibration, &out->calibration));
}

static enum error_code registry_json_read_entries(yyjson_val *list, struct registry *out,
                                                  struct error *err)
{
    size_t n = yyjson_arr_size(list);
    if (n > LIMIT_REGISTRY_ENTRIES)
        return error_set(err, ERROR_INVALID, "%zu entries are more than the limit of %d", n,
                         LIMIT_REGISTRY_ENTRIES);
    if (n == 0)
        return ERROR_NONE;
    out->entries = mem_new_array(n, sizeof *out->entries);
    if (!out->entries)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    size_t i, count;
    yyjson_val *value;
    yyjson_arr_foreach(list, i, count, value)
    {
        struct registry_entry *entry = &out->entries[i];
        if (!registry_json_read_entry(value, entry))
            return error_set(err, ERROR_INVALID, "entry %zu is malformed", i + 1);
        if (registry_find(out, &entry->key)) /* among those before it */
            return error_set(err, ERROR_INVALID, "entry %zu appears twice", i + 1);
        out->count++;
    }
    return ERROR_NONE;
}

enum error_code registry_parse(const char *json, size_t size, struct registry *out,
                               struct error *err)
{
    *out = (struct registry){0};
    yyjson_read_err problem;
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)json, size, 0, &json_memory, &problem);
    if (!doc)
        return error_set(err,
                         problem.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION ? ERROR_NO_MEMORY
                                                                             : ERROR_INVALID,
                         "byte %zu: %s", problem.pos, problem.msg);
    enum error_code code;
    yyjson_val *version, *entries;
    const struct calibration_field fields[] = {{"medley_devices", JSON_COUNT, &version},
                                               {"entries", JSON_ARRAY, &entries}};
    if (!json_fields(yyjson_doc_get_root(doc), fields, 2))
        code = error_set(err, ERROR_INVALID, "it is not a registry of devices");
    else if (yyjson_get_uint(version) != VERSION)
        code = error_set(err, ERROR_INVALID, "its version is not %d", VERSION);
    else
        code = registry_json_read_entries(entries, out, err);
    yyjson_doc_free(doc);
    if (code)
        registry_deinit(out);
    return code;
}

/* ---- writing --------------------------------------------------------------------------- */

static bool add_entry(yyjson_mut_doc *doc, yyjson_mut_val *list, const struct registry_entry *entry)
{
    yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
    yyjson_mut_val *calibration =
        entry->calibrated ? calibration_to_json(doc, &entry->calibration) : yyjson_mut_null(doc);
    return yyjson_mut_obj_add_str(doc, object, "backend", entry->key.backend) &&
           yyjson_mut_obj_add_str(doc, object, "device", entry->key.device) &&
           yyjson_mut_obj_add_str(doc, object, "driver", entry->key.driver) &&
           yyjson_mut_obj_add_str(doc, object, "ggml", entry->key.ggml) &&
           yyjson_mut_obj_add_str(doc, object, "verification", result_names[entry->result]) &&
           yyjson_mut_obj_add_str(doc, object, "reason", entry->reason) &&
           yyjson_mut_obj_add_uint(doc, object, "verified_unix_s", entry->verified_unix_s) &&
           calibration && yyjson_mut_obj_add_val(doc, object, "calibration", calibration);
}

enum error_code registry_write_json(const struct registry *registry, char **json, size_t *size,
                                    struct error *err)
{
    *json = NULL;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    if (!doc)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    bool ok = yyjson_mut_obj_add_uint(doc, root, "medley_devices", VERSION);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "entries");
    for (uint32_t i = 0; ok && i < registry->count; i++)
        ok = add_entry(doc, list, &registry->entries[i]);
    if (ok && list)
        *json = yyjson_mut_write_opts(doc, YYJSON_WRITE_PRETTY | YYJSON_WRITE_NEWLINE_AT_END,
                                      &json_memory, size, NULL);
    yyjson_mut_doc_free(doc);
    /* the texts are valid UTF-8 and the numbers finite, so that memory is all that can be
     * missing */
    return *json ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "out of memory");
}
