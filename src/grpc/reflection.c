#include "grpc/reflection.h"

#include "grpc/frame.h"
#include "grpc/schema_files.h"

#include "grpc_reflection.pb-c.h"

#include <stdlib.h>
#include <string.h>

bool grpc_reflection_is(const char *path)
{
    return strcmp(path, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo") == 0 ||
           strcmp(path, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo") == 0;
}

/* Where the answer is put together. */
struct reflection_answer {
    Grpc__Reflection__V1__ServerReflectionResponse root;
    Grpc__Reflection__V1__FileDescriptorResponse files;
    Grpc__Reflection__V1__ListServiceResponse services;
    Grpc__Reflection__V1__ErrorResponse error;
    ProtobufCBinaryData file;
    Grpc__Reflection__V1__ServiceResponse service[3], *service_list[3];
};

static void reflection_refuse(struct reflection_answer *answer, enum grpc_code code,
                              const char *words)
{
    grpc__reflection__v1__error_response__init(&answer->error);
    answer->error.has_error_code = 1;
    answer->error.error_code = (int32_t)code;
    answer->error.error_message = (char *)(uintptr_t)words;
    answer->root.error_response = &answer->error;
}

static bool reflection_defines(const struct grpc_schema_file *file, const char *symbol)
{
    for (const char *const *at = file->symbols; *at; at++) {
        if (strcmp(*at, symbol) == 0)
            return true;
    }
    return false;
}

/* By its own name, or by that of something that it defines. */
static void reflection_find_file(struct reflection_answer *answer, const char *name,
                                 const char *symbol)
{
    const struct grpc_schema_file *file = grpc_schema_files;
    while (file->name && !(name ? strcmp(file->name, name) == 0 : reflection_defines(file, symbol)))
        file++;
    if (!file->name) {
        reflection_refuse(answer, GRPC_NOT_FOUND,
                          name ? "no such file: list_services says what is there"
                               : "no such symbol: list_services says what is there");
        return;
    }
    grpc__reflection__v1__file_descriptor_response__init(&answer->files);
    answer->file.data = (uint8_t *)(uintptr_t)file->descriptor;
    answer->file.len = file->size;
    answer->files.n_file_descriptor_proto = 1;
    answer->files.file_descriptor_proto = &answer->file;
    answer->root.file_descriptor_response = &answer->files;
}

static void reflection_list(struct reflection_answer *answer)
{
    static const char *const names[] = {
        "medley.v1.Medley",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    };
    grpc__reflection__v1__list_service_response__init(&answer->services);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        grpc__reflection__v1__service_response__init(&answer->service[i]);
        answer->service[i].name = (char *)(uintptr_t)names[i];
        answer->service_list[i] = &answer->service[i];
    }
    answer->services.n_service = sizeof names / sizeof *names;
    answer->services.service = answer->service_list;
    answer->root.list_services_response = &answer->services;
}

static void reflection_fill(struct reflection_answer *answer,
                            Grpc__Reflection__V1__ServerReflectionRequest *request)
{
    grpc__reflection__v1__server_reflection_response__init(&answer->root);
    answer->root.valid_host = request->host;
    answer->root.original_request = request;
    if (request->list_services)
        reflection_list(answer);
    else if (request->file_by_filename || request->file_containing_symbol)
        reflection_find_file(answer, request->file_by_filename, request->file_containing_symbol);
    else
        reflection_refuse(answer, GRPC_NOT_FOUND, "nothing here has extensions");
}

bool grpc_reflection_answer(const void *message, size_t size, struct buffer *out,
                            struct grpc_status *status)
{
    struct reflection_answer answer;
    Grpc__Reflection__V1__ServerReflectionRequest *request =
        grpc__reflection__v1__server_reflection_request__unpack(NULL, size, size ? message : NULL);
    if (!request) {
        grpc_status_set(status, GRPC_INVALID_ARGUMENT,
                        "the message is no grpc.reflection.v1.ServerReflectionRequest");
        return false;
    }
    reflection_fill(&answer, request);
    const ProtobufCMessage *root = &answer.root.base;
    struct buffer packed = {0};
    uint8_t *bytes = buffer_extend(&packed, protobuf_c_message_get_packed_size(root));
    if (bytes)
        protobuf_c_message_pack(root, bytes);
    grpc__reflection__v1__server_reflection_request__free_unpacked(request, NULL);
    if (bytes)
        grpc_frame_write(packed.data, packed.size, out);
    buffer_deinit(&packed);
    if (!bytes || out->failed)
        grpc_status_set(status, GRPC_RESOURCE_EXHAUSTED, "not enough memory for the answer");
    return bytes && !out->failed;
}
