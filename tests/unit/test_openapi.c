/* The OpenAPI document against the tables that it describes: routes with their scopes, and the
 * fields of requests. */
#include "api/access.h"
#include "api/json_in.h"
#include "api/openapi.h"
#include "api/routes.h"
#include "trust/access_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SCOPES_MAX = 64 };

static yyjson_doc *document;
static yyjson_val *paths, *schemas;

static int openapi_set_up(void **state)
{
    document = yyjson_read(openapi_document, openapi_document_size, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(document);
    paths = yyjson_obj_get(root, "paths");
    schemas = yyjson_obj_get(yyjson_obj_get(root, "components"), "schemas");
    return paths && schemas ? 0 : -1;
}

static int openapi_tear_down(void **state)
{
    yyjson_doc_free(document);
    return 0;
}

/* "/v1/files/{id}/content" is "/v1/files/…/content" in the table. */
static bool path_is_of(const char *path, const char *route)
{
    static const char name[] = "…";
    const size_t fixed = strcspn(path, "{"), named = path[fixed] ? sizeof name - 1 : 0;
    const char *rest = path[fixed] ? strchr(path, '}') + 1 : path + fixed;
    return strncmp(path, route, fixed) == 0 && strncmp(route + fixed, name, named) == 0 &&
           strcmp(route + fixed + named, rest) == 0;
}

static yyjson_val *operation_of(const struct route *route)
{
    static const char *const methods[] = {
        [METHOD_GET] = "get", [METHOD_POST] = "post", [METHOD_DELETE] = "delete"};
    size_t index, max;
    yyjson_val *path, *operations;
    yyjson_obj_foreach(paths, index, max, path, operations)
    {
        if (path_is_of(yyjson_get_str(path), route->path))
            return yyjson_obj_get(operations, methods[route->method]);
    }
    return NULL;
}

static void write_scopes(yyjson_val *operation, char *out, size_t size)
{
    size_t index, max, used = 0;
    yyjson_val *scope;
    out[0] = '\0';
    yyjson_arr_foreach(yyjson_obj_get(operation, "x-medley-scopes"), index, max, scope)
    {
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "," : "",
                                 yyjson_get_str(scope));
    }
}

static const char *error_of(yyjson_val *operation)
{
    yyjson_val *refused = yyjson_obj_get(yyjson_obj_get(operation, "responses"), "4XX");
    return yyjson_get_str(yyjson_obj_get(refused, "$ref"));
}

static void test_every_route_is_described(void **state)
{
    static const char *const errors[] = {[API_SHAPE_OPENAI] = "#/components/responses/Error",
                                         [API_SHAPE_ANTHROPIC] =
                                             "#/components/responses/AnthropicError",
                                         [API_SHAPE_OLLAMA] = "#/components/responses/OllamaError"};
    size_t count;
    const struct route *routes = routes_all(&count);
    for (size_t i = 0; i < count; i++) {
        yyjson_val *operation = operation_of(&routes[i]);
        char described[SCOPES_MAX], wanted[SCOPES_MAX] = "";
        if (!operation)
            fail_msg("%s is not in the document", routes[i].path);
        write_scopes(operation, described, sizeof described);
        if (routes[i].scopes)
            access_scopes_text(routes[i].scopes, wanted, sizeof wanted);
        assert_string_equal(described, wanted);
        assert_string_equal(error_of(operation), errors[routes[i].shape]);
    }
}

static void test_every_description_has_a_route(void **state)
{
    size_t index, max, i, n, described = 0, count;
    yyjson_val *path, *operations, *method, *operation;
    routes_all(&count);
    yyjson_obj_foreach(paths, index, max, path, operations)
    {
        yyjson_obj_foreach(operations, i, n, method, operation) described++;
    }
    assert_int_equal(described, count); /* all routes are in it, each once */
}

static const struct json_field *field_of(const struct json_field *fields, const char *name,
                                         unsigned kind)
{
    for (; fields->name; fields++) {
        if (strcmp(fields->name, name) == 0 && (!fields->kinds || fields->kinds & 1U << kind))
            return fields->read == json_in_unsupported ? NULL : fields;
    }
    return NULL;
}

static bool is_required(yyjson_val *schema, const char *name)
{
    size_t index, max;
    yyjson_val *required;
    yyjson_arr_foreach(yyjson_obj_get(schema, "required"), index, max, required)
    {
        if (yyjson_equals_str(required, name))
            return true;
    }
    return false;
}

static void check_fields(const char *name, const struct json_field *fields, unsigned kind)
{
    yyjson_val *schema = yyjson_obj_get(schemas, name), *key, *value;
    yyjson_val *properties = yyjson_obj_get(schema, "properties");
    size_t index, max;
    yyjson_obj_foreach(properties, index, max, key, value)
    {
        if (!field_of(fields, yyjson_get_str(key), kind))
            fail_msg("%s.%s is not read", name, yyjson_get_str(key));
    }
    for (const struct json_field *field = fields; field->name; field++) {
        const struct json_field *read = field_of(fields, field->name, kind);
        if (!read)
            continue;
        if (!yyjson_obj_get(properties, field->name))
            fail_msg("%s.%s is not in the document", name, field->name);
        assert_int_equal(is_required(schema, field->name), read->required);
    }
}

static void test_fields_are_those_that_are_read(void **state)
{
    check_fields("ChatRequest", generation_request_fields(), GENERATION_CHAT);
    check_fields("CompletionRequest", generation_request_fields(), GENERATION_COMPLETION);
    check_fields("EmbeddingsRequest", embeddings_request_fields(), 0);
    check_fields("RerankRequest", rerank_request_fields(), 0);
    check_fields("BatchRequest", batch_request_fields(), 0);
    check_fields("TokenizeRequest", tokenize_request_fields(), 0);
    check_fields("DetokenizeRequest", detokenize_request_fields(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_route_is_described),
        cmocka_unit_test(test_every_description_has_a_route),
        cmocka_unit_test(test_fields_are_those_that_are_read),
    };
    return cmocka_run_group_tests(tests, openapi_set_up, openapi_tear_down);
}
