/* The models that a node serves, and how fast each would run in its cluster.
 *
 *   cc client_forecast.c $(pkg-config --cflags --libs medley)
 *   client_forecast URL [AUTHORITY.pem]
 *
 * All forecasts are asked for at once, on one loop. The token, where the node wants one, is in the
 * environment variable MEDLEY_TOKEN. */
#include <medley/client.h>
#include <stdio.h>
#include <stdlib.h>

enum { MODELS_MAX = 64 };

struct model {
    struct medley_client_request request;
    struct survey *survey;
    char name[128];
};

struct survey {
    struct medley_client *client;
    struct medley_client_request listing;
    struct model models[MODELS_MAX];
    unsigned n_waiting;
    int status;
};

static void survey_end_one(struct survey *survey)
{
    if (--survey->n_waiting == 0)
        medley_client_close(survey->client, NULL, NULL);
}

static void on_forecast(struct medley_client_request *request)
{
    struct model *model = request->data;
    const struct medley_forecast *forecast = request->forecast;
    if (request->error.code) {
        printf("%s: %s\n", model->name, request->error.text);
        model->survey->status = 1;
    } else if (!forecast->possible) {
        printf("%s: %s\n", model->name, forecast->problem);
    } else {
        printf("%s: %.1f tokens/s", model->name, forecast->decode_tokens_per_s);
        for (uint32_t i = 0; i < forecast->n_stages; i++)
            printf(", %u layers on %s/%s", forecast->stages[i].n_layers, forecast->stages[i].node,
                   forecast->stages[i].device);
        printf("\n");
    }
    survey_end_one(model->survey);
}

static void on_models(struct medley_client_request *request)
{
    struct survey *survey = request->data;
    if (request->error.code) {
        fprintf(stderr, "%s\n", request->error.text);
        survey->status = 1;
    }
    for (uint32_t i = 0; i < request->n_models && i < MODELS_MAX; i++) {
        struct model *model = &survey->models[i];
        model->survey = survey;
        model->request.data = model;
        snprintf(model->name, sizeof model->name, "%s", request->models[i].id);
        const struct medley_forecast_question question = {.model = model->name,
                                                          .context_tokens = 512};
        survey->n_waiting++;
        if (medley_client_forecast(survey->client, &question, &model->request, on_forecast))
            on_forecast(&model->request);
    }
    survey_end_one(survey);
}

int main(int argc, char **argv)
{
    static struct survey survey = {.n_waiting = 1};
    struct medley_error err;
    if (argc < 2) {
        fprintf(stderr, "Usage: %s URL [AUTHORITY.pem]\n", argv[0]);
        return 2;
    }
    const struct medley_client_options options = {
        .url = argv[1],
        .token = getenv("MEDLEY_TOKEN"),
        .authority_path = argc > 2 ? argv[2] : NULL,
    };
    survey.listing.data = &survey;
    if (medley_client_open(uv_default_loop(), &options, &survey.client, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (medley_client_models(survey.client, &survey.listing, on_models))
        on_models(&survey.listing);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    uv_loop_close(uv_default_loop());
    return survey.status;
}
