/* Where a reference leads: resources ($id), anchors and pointers of one document. */
#include "base/mem.h"
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void schema_refs_deinit(struct schema *schema)
{
    for (uint32_t i = 0; i < schema->n_resources; i++)
        mem_free(schema->resources[i].uri);
    mem_free(schema->resources);
    mem_free(schema->anchors);
    mem_free(schema->references);
}

/* RFC 3986 5.2, without dots: what schemas' identifiers need. The caller frees. */
static char *schema_join_uri(const char *base, const char *reference, size_t size)
{
    const char *colon = memchr(reference, ':', size), *slash = memchr(reference, '/', size);
    size_t kept = 0;
    if (!colon || (slash && slash < colon)) {
        const char *authority = strstr(base, "://");
        const char *root = authority ? strchr(authority + 3, '/') : NULL;
        const char *last = strrchr(base, '/');
        if (size && *reference == '/')
            kept = root ? (size_t)(root - base) : strlen(base);
        else if (size)
            kept =
                last && last >= (authority ? authority + 3 : base) ? (size_t)(last - base) + 1 : 0;
        else
            kept = strlen(base);
    }
    char *uri = mem_new(kept + size + 1);
    if (uri) {
        memcpy(uri, base, kept);
        memcpy(uri + kept, reference, size);
    }
    return uri;
}

static uint32_t schema_add_resource(struct schema *schema, uint32_t parent, yyjson_mut_val *root,
                                    const char *id)
{
    if (!SCHEMA_ROOM(schema, schema, resources, schema->n_resources + 1))
        return parent;
    const char *base = schema->n_resources ? schema->resources[parent].uri : "";
    char *uri = schema_join_uri(base, id, strcspn(id, "#"));
    if (!uri) {
        schema_no_memory(schema);
        return parent;
    }
    for (uint32_t i = 1; i < schema->n_resources; i++) {
        if (strcmp(schema->resources[i].uri, uri) == 0)
            schema_refuse(schema, ERROR_INVALID, root, "$id", "stands twice in this document");
    }
    schema->resources[schema->n_resources] = (struct schema_resource){uri, root};
    return schema->n_resources++;
}

static void schema_add_anchor(struct schema *schema, uint32_t resource, yyjson_mut_val *value,
                              const char *keyword, bool is_dynamic)
{
    yyjson_mut_val *name = yyjson_mut_obj_get(value, keyword);
    if (!yyjson_mut_is_str(name) || !SCHEMA_ROOM(schema, schema, anchors, schema->n_anchors + 1))
        return;
    schema->anchors[schema->n_anchors++] =
        (struct schema_anchor){resource, is_dynamic, name, value};
}

static void schema_find_in(struct schema *schema, uint32_t resource, yyjson_mut_val *value,
                           unsigned depth)
{
    if (depth > LIMIT_GRAMMAR_DEPTH) {
        schema_refuse(schema, ERROR_BUSY, value, NULL, "the schema is nested too deeply");
        return;
    }
    yyjson_mut_val *key, *child;
    size_t index, max;
    if (yyjson_mut_is_arr(value)) {
        yyjson_mut_arr_foreach(value, index, max, child)
            schema_find_in(schema, resource, child, depth + 1);
        return;
    }
    if (!yyjson_mut_is_obj(value) || schema->code)
        return;
    yyjson_mut_val *id = yyjson_mut_obj_get(value, "$id");
    if (yyjson_mut_is_str(id) && *yyjson_mut_get_str(id) == '#') { /* draft-07's anchors */
        if (SCHEMA_ROOM(schema, schema, anchors, schema->n_anchors + 1))
            schema->anchors[schema->n_anchors++] = (struct schema_anchor){
                resource, false, yyjson_mut_str(schema->doc, yyjson_mut_get_str(id) + 1), value};
    } else if (yyjson_mut_is_str(id) && depth)
        resource = schema_add_resource(schema, resource, value, yyjson_mut_get_str(id));
    schema_add_anchor(schema, resource, value, "$anchor", false);
    schema_add_anchor(schema, resource, value, "$dynamicAnchor", true);
    if ((yyjson_mut_obj_get(value, "$ref") || yyjson_mut_obj_get(value, "$dynamicRef")) &&
        SCHEMA_ROOM(schema, schema, references, schema->n_references + 1))
        schema->references[schema->n_references++] = (struct schema_reference){value, resource};
    yyjson_mut_obj_foreach(value, index, max, key, child)
    {
        if (!yyjson_mut_equals_str(key, "enum") && !yyjson_mut_equals_str(key, "const") &&
            !yyjson_mut_equals_str(key, "examples") && !yyjson_mut_equals_str(key, "default"))
            schema_find_in(schema, resource, child, depth + 1);
    }
}

void schema_find_resources(struct schema *schema)
{
    yyjson_mut_val *root = yyjson_mut_doc_get_root(schema->doc);
    yyjson_mut_val *id = yyjson_mut_is_obj(root) ? yyjson_mut_obj_get(root, "$id") : NULL;
    schema_add_resource(schema, 0, root, yyjson_mut_is_str(id) ? yyjson_mut_get_str(id) : "");
    if (!schema->code)
        schema_find_in(schema, 0, root, 0);
}

static int schema_hex_digit(char c)
{
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

/* RFC 6901, percent-encoded as in a fragment. */
static yyjson_mut_val *schema_pointer(yyjson_mut_val *at, const char *pointer)
{
    char *name = mem_new(strlen(pointer) + 1);
    while (name && at && *pointer == '/') {
        size_t n = 0;
        for (pointer++; *pointer && *pointer != '/'; pointer++) {
            char c = *pointer;
            if (c == '%' && schema_hex_digit(pointer[1]) >= 0 &&
                schema_hex_digit(pointer[2]) >= 0) {
                c = (char)(schema_hex_digit(pointer[1]) * 16 + schema_hex_digit(pointer[2]));
                pointer += 2;
            }
            if (c == '~' && (pointer[1] == '0' || pointer[1] == '1'))
                c = *++pointer == '0' ? '~' : '/';
            name[n++] = c;
        }
        name[n] = 0;
        if (yyjson_mut_is_arr(at))
            at = n && strspn(name, "0123456789") == n
                     ? yyjson_mut_arr_get(at, (size_t)strtoul(name, NULL, 10))
                     : NULL;
        else
            at = yyjson_mut_obj_getn(at, name, n);
    }
    mem_free(name);
    return name && !*pointer ? at : NULL;
}

static uint32_t schema_resource_of(const struct schema *schema, yyjson_mut_val *owner)
{
    for (uint32_t i = 0; i < schema->n_references; i++) {
        if (schema->references[i].schema == owner)
            return schema->references[i].resource;
    }
    return 0;
}

/* NULL: not there. *is_dynamic: it stands under a $dynamicAnchor. */
static yyjson_mut_val *schema_fragment(const struct schema *schema, uint32_t resource,
                                       const char *fragment, bool *is_dynamic)
{
    if (!*fragment || *fragment == '/')
        return schema_pointer(schema->resources[resource].root, fragment);
    for (uint32_t i = 0; i < schema->n_anchors; i++) {
        if (schema->anchors[i].resource == resource &&
            yyjson_mut_equals_str(schema->anchors[i].name, fragment)) {
            *is_dynamic = schema->anchors[i].is_dynamic;
            return schema->anchors[i].schema;
        }
    }
    return NULL;
}

static bool schema_is_only_dynamic(const struct schema *schema, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < schema->n_anchors; i++)
        n += schema->anchors[i].is_dynamic && yyjson_mut_equals_str(schema->anchors[i].name, name);
    return n == 1;
}

yyjson_mut_val *schema_target(struct schema *schema, yyjson_mut_val *owner, const char *keyword)
{
    const char *reference = yyjson_mut_get_str(yyjson_mut_obj_get(owner, keyword));
    if (!reference) {
        schema_refuse(schema, ERROR_INVALID, owner, keyword, "must be a text");
        return NULL;
    }
    uint32_t resource = schema_resource_of(schema, owner);
    const size_t size = strcspn(reference, "#");
    const char *fragment = reference[size] ? reference + size + 1 : "";
    if (size) {
        char *uri = schema_join_uri(schema->resources[resource].uri, reference, size);
        uint32_t found = schema->n_resources;
        for (uint32_t i = 0; uri && i < schema->n_resources; i++) {
            if (strcmp(schema->resources[i].uri, uri) == 0)
                found = i;
        }
        mem_free(uri);
        resource = found;
    }
    bool is_dynamic = false;
    yyjson_mut_val *target = resource < schema->n_resources
                                 ? schema_fragment(schema, resource, fragment, &is_dynamic)
                                 : NULL;
    if (!target)
        schema_refuse(schema, ERROR_UNSUPPORTED, owner, keyword,
                      "leads to nothing in this document; others are not read");
    else if (strcmp(keyword, "$dynamicRef") == 0 && is_dynamic &&
             !schema_is_only_dynamic(schema, fragment))
        schema_refuse(schema, ERROR_UNSUPPORTED, owner, keyword,
                      "several $dynamicAnchor have this name");
    return target;
}
