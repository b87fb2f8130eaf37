/** Made from the OpenAPI document by generate.mjs: do not edit. */
export interface paths {
    "/v1/models": {
        /** The models that can be asked for */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": {
                            /** @constant */
                            object: "list";
                            data: components["schemas"]["Model"][];
                        };
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/models/{name}": {
        /** One of them */
        get: {
            parameters: {
                path: {
                    name: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Model"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/chat/completions": {
        /** The next message of a chat */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["ChatRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["ChatCompletion"];
                        "text/event-stream": components["schemas"]["ChatCompletionChunk"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/completions": {
        /** How a text goes on */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["CompletionRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Completion"];
                        "text/event-stream": components["schemas"]["CompletionChunk"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/embeddings": {
        /** A vector of each text */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["EmbeddingsRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Embeddings"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/files": {
        /** The files of this client, the newest first */
        get: {
            parameters: {
                query?: {
                    limit?: number;
                    after?: string;
                    purpose?: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": {
                            /** @constant */
                            object: "list";
                            data: components["schemas"]["File"][];
                            has_more: boolean;
                        };
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
        /** Keeps a file of requests for a batch */
        post: {
            requestBody: {
                content: {
                    "multipart/form-data": components["schemas"]["FileForm"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["File"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/files/{id}": {
        /** One of them */
        get: {
            parameters: {
                path: {
                    id: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["File"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
        /** Deletes it */
        delete: {
            parameters: {
                path: {
                    id: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": {
                            id: string;
                            /** @constant */
                            object: "file";
                            /** @constant */
                            deleted: true;
                        };
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/files/{id}/content": {
        /** What is in it */
        get: {
            parameters: {
                path: {
                    id: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/jsonl": string;
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/batches": {
        /** The batches of this client, the newest first */
        get: {
            parameters: {
                query?: {
                    limit?: number;
                    after?: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": {
                            /** @constant */
                            object: "list";
                            data: components["schemas"]["Batch"][];
                            has_more: boolean;
                        };
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
        /** Works on a file of requests while nobody else asks for anything */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["BatchRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Batch"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/batches/{id}": {
        /** One of them */
        get: {
            parameters: {
                path: {
                    id: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Batch"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/batches/{id}/cancel": {
        /** Ends it: what it has answered stays */
        post: {
            parameters: {
                path: {
                    id: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Batch"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/rerank": {
        /** A score of each document */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["RerankRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Rerank"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/tokenize": {
        /** The tokens of a text */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["TokenizeRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Tokens"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/detokenize": {
        /** The text of tokens */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["DetokenizeRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["DetokenizedText"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/responses": {
        /** The next items of a conversation */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["ResponseRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Response"];
                        "text/event-stream": components["schemas"]["ResponseEvent"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/v1/messages": {
        /** Anthropic's next message */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["MessagesRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Messages"];
                        "text/event-stream": components["schemas"]["MessagesEvent"];
                    };
                };
                503: components["responses"]["AnthropicError"];
                "4XX": components["responses"]["AnthropicError"];
            };
        };
    };
    "/v1/messages/count_tokens": {
        /** How many tokens a request has */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["CountTokensRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": {
                            input_tokens: number;
                        };
                    };
                };
                503: components["responses"]["AnthropicError"];
                "4XX": components["responses"]["AnthropicError"];
            };
        };
    };
    "/api/chat": {
        /** Ollama's next message of a chat */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OllamaChatRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["OllamaChat"];
                        "application/x-ndjson": components["schemas"]["OllamaChat"] | components["schemas"]["OllamaError"];
                    };
                };
                503: components["responses"]["OllamaError"];
                "4XX": components["responses"]["OllamaError"];
            };
        };
    };
    "/api/generate": {
        /** How a prompt goes on */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OllamaGenerateRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["OllamaGenerate"];
                        "application/x-ndjson": components["schemas"]["OllamaGenerate"] | components["schemas"]["OllamaError"];
                    };
                };
                503: components["responses"]["OllamaError"];
                "4XX": components["responses"]["OllamaError"];
            };
        };
    };
    "/api/tags": {
        /** The models that can be asked for */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["OllamaTags"];
                    };
                };
                503: components["responses"]["OllamaError"];
                "4XX": components["responses"]["OllamaError"];
            };
        };
    };
    "/api/ps": {
        /** The models that are loaded */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["OllamaRunning"];
                    };
                };
                503: components["responses"]["OllamaError"];
                "4XX": components["responses"]["OllamaError"];
            };
        };
    };
    "/api/version": {
        /** Medley's version */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": {
                            version: string;
                        };
                    };
                };
                503: components["responses"]["OllamaError"];
                "4XX": components["responses"]["OllamaError"];
            };
        };
    };
    "/api/show": {
        /** What a model can */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OllamaShowRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["OllamaShow"];
                    };
                };
                503: components["responses"]["OllamaError"];
                "4XX": components["responses"]["OllamaError"];
            };
        };
    };
    "/api/embed": {
        /** A vector of each text */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OllamaEmbedRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["OllamaEmbed"];
                    };
                };
                503: components["responses"]["OllamaError"];
                "4XX": components["responses"]["OllamaError"];
            };
        };
    };
    "/api/embeddings": {
        /** A vector of a text */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OllamaEmbeddingsRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": {
                            embedding: number[];
                        };
                    };
                };
                503: components["responses"]["OllamaError"];
                "4XX": components["responses"]["OllamaError"];
            };
        };
    };
    "/api/pull": {
        /** Brings a model of Ollama's registry, or of a hub, here */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OllamaPullRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["OllamaPull"];
                        "application/x-ndjson": components["schemas"]["OllamaPull"] | components["schemas"]["OllamaError"];
                    };
                };
                503: components["responses"]["OllamaError"];
                "4XX": components["responses"]["OllamaError"];
            };
        };
    };
    "/completion": {
        /** How a prompt goes on */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["LlamaCompletionRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["LlamaCompletion"];
                        "text/event-stream": components["schemas"]["LlamaCompletionEvent"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/infill": {
        /** What stands between two texts */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["InfillRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["LlamaCompletion"];
                        "text/event-stream": components["schemas"]["LlamaCompletionEvent"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/apply-template": {
        /** A chat as the model's template renders it */
        post: {
            requestBody: {
                content: {
                    "application/json": components["schemas"]["TemplateRequest"];
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Template"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/props": {
        /** What the server is set to */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Props"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/slots": {
        /** What the server does */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Slots"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/health": {
        /** Whether the server is up, and more where no token is needed */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Health"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/metrics": {
        /** Figures for Prometheus */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "text/plain": string;
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/openapi.json": {
        /** This document */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": Record<string, never>;
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/requests": {
        /** What requests took */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["RequestRecords"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/requests/{id}": {
        /** What one took */
        get: {
            parameters: {
                path: {
                    id: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["RequestRecord"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/live": {
        /** The cluster as it is, and each change */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "text/event-stream": Record<string, never>;
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/history": {
        /** The last minute of a device */
        get: {
            parameters: {
                query?: {
                    node?: string;
                    device?: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": Record<string, never>;
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/session": {
        /** What this client may do */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Session"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
        /** Signs a browser in */
        post: {
            requestBody: {
                content: {
                    "application/json": Record<string, never>;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Session"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
        /** Signs it out */
        delete: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": {
                            signed_in: boolean;
                        };
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/passes": {
        /** A pass that signs another browser in */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        scopes?: string | null;
                        minutes?: number | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/json": components["schemas"]["Pass"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/status": {
        /** The node, its cluster, models and instances */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": components["schemas"]["Status"] | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/nodes": {
        /** All nodes, and the machines that wait to be let in */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": components["schemas"]["Nodes"] | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/links": {
        /** The links in each direction */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": components["schemas"]["Links"] | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/cluster": {
        /** The cluster as `medley plan --cluster` reads it */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/moves": {
        /** Whether instances move for gain */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
        /** Whether instances move for gain */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        on?: boolean | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/alerts": {
        /** What is raised, and what was */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": components["schemas"]["Alerts"] | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
        /** Lines, times and silence of alerts */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        kinds?: boolean | null;
                        set?: string | null;
                        value?: number | null;
                        mute?: string | null;
                        unmute?: string | null;
                        seconds?: number | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/plan": {
        /** How a model would be placed */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        model?: string | null;
                        context?: number | null;
                        streams?: number | null;
                        cells?: number | null;
                        /** @enum {unknown} */
                        kv?: "f16" | "f32" | "q8_0" | "q4_0" | null;
                        /** @enum {unknown} */
                        speculate?: "lookup" | "off" | null;
                        draft?: string | null;
                        draft_device?: string | null;
                        goal?: string | null;
                        precision?: string | null;
                        allow_precision?: string | null;
                        weights_memory?: (string | number) | null;
                        score_weights?: string | null;
                        time_limit_s?: number | null;
                        rope?: ({
                            /** @enum {unknown} */
                            scaling?: "none" | "linear" | "yarn";
                            scale?: number;
                            base?: number;
                            original_tokens?: number;
                        } & {
                            [key: string]: unknown;
                        }) | null;
                        without?: string[] | null;
                        with?: Record<string, never>[] | null;
                        layers?: ({
                            node: string;
                            device: string;
                            n_layers: number;
                        } & {
                            [key: string]: unknown;
                        })[] | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/place": {
        /** Places a model */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        model?: string | null;
                        context?: number | null;
                        streams?: number | null;
                        cells?: number | null;
                        /** @enum {unknown} */
                        kv?: "f16" | "f32" | "q8_0" | "q4_0" | null;
                        /** @enum {unknown} */
                        speculate?: "lookup" | "off" | null;
                        draft?: string | null;
                        draft_device?: string | null;
                        goal?: string | null;
                        precision?: string | null;
                        allow_precision?: string | null;
                        weights_memory?: (string | number) | null;
                        score_weights?: string | null;
                        time_limit_s?: number | null;
                        rope?: ({
                            /** @enum {unknown} */
                            scaling?: "none" | "linear" | "yarn";
                            scale?: number;
                            base?: number;
                            original_tokens?: number;
                        } & {
                            [key: string]: unknown;
                        }) | null;
                        idle_s?: number | null;
                        layers?: ({
                            node: string;
                            device: string;
                            n_layers: number;
                        } & {
                            [key: string]: unknown;
                        })[] | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/unload": {
        /** Unloads an instance */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        instance?: string | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/move": {
        /** Moves an instance */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        instance?: string | null;
                        to?: ({
                            node: string;
                            device: string;
                            n_layers: number;
                        } & {
                            [key: string]: unknown;
                        })[] | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/add": {
        /** Adds a file of this machine */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        path?: string | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/forget": {
        /** Forgets a model */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        model?: string | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/where": {
        /** A file with a model's header */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        model?: string | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/drain": {
        /** Empties a machine */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        node?: string | null;
                        undo?: boolean | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/invite": {
        /** A code for another machine */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        minutes?: number | null;
                        /** @enum {unknown} */
                        role?: "admin" | "member" | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/join": {
        /** Joins a cluster */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        code?: string | null;
                        host?: string | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/admit": {
        /** Lets a machine in */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        node?: string | null;
                        words?: string | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/remove": {
        /** Removes a machine */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        node?: string | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/role": {
        /** Makes a machine an admin, or a member */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        node?: string | null;
                        /** @enum {unknown} */
                        role?: "admin" | "member" | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/leave": {
        /** Leaves the cluster; the node ends */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/authority": {
        /** The cluster's keys */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        /** @enum {unknown} */
                        what?: "rotate" | "retire" | null;
                        grace_s?: number | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/token": {
        /** Makes, lists and revokes tokens */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        /** @enum {unknown} */
                        what?: "create" | "list" | "revoke" | null;
                        name?: string | null;
                        scopes?: string | null;
                        models?: string[] | null;
                        places?: string[] | null;
                        expires_s?: number | null;
                        requests_per_min?: number | null;
                        streams?: number | null;
                        tokens_per_day?: number | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/api/audit": {
        /** The record of who did what */
        get: {
            parameters: {
                query?: {
                    last?: string | null;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
        /** How long entries are kept, or the last of them */
        post: {
            requestBody: {
                content: {
                    "application/json": {
                        keep_days?: number | null;
                        last?: number | null;
                    } & {
                        [key: string]: unknown;
                    };
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "application/x-ndjson": Record<string, never> | components["schemas"]["Error"];
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/": {
        /** The page */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "*/*": string;
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/assets/{file}": {
        /** Its files */
        get: {
            parameters: {
                path: {
                    file: string;
                };
            };
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "*/*": string;
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/icon.svg": {
        /** Its icon */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "*/*": string;
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
    "/manifest.webmanifest": {
        /** Its manifest */
        get: {
            responses: {
                /** @description Done */
                200: {
                    content: {
                        "*/*": string;
                    };
                };
                503: components["responses"]["Error"];
                "4XX": components["responses"]["Error"];
            };
        };
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        Error: {
            error: {
                message: string;
                text: string;
                type: string | null;
                param: string | null;
                code: string | null;
            };
        };
        Model: {
            id: string;
            /** @constant */
            object: "model";
            created: number;
            owned_by: string;
        };
        Usage: {
            prompt_tokens: number;
            completion_tokens: number;
            total_tokens: number;
            prompt_tokens_details: {
                cached_tokens: number;
            };
        };
        ResponseFormat: {
            /** @constant */
            type: "text";
        } | {
            /** @constant */
            type: "json_object";
        } | {
            /** @constant */
            type: "json_schema";
            json_schema: {
                name?: unknown;
                description?: unknown;
                strict?: unknown;
                schema?: Record<string, never> | boolean | null;
            };
        };
        Tool: {
            /** @constant */
            type: "function";
            function: {
                name: string;
                description?: string | null;
                parameters?: Record<string, never> | null;
                strict?: boolean | null;
            };
        };
        ToolChoice: ("none" | "auto" | "required") | {
            function: {
                name: string;
            };
        };
        Message: {
            /** @enum {unknown} */
            role: "system" | "developer";
            content: string | {
                /** @constant */
                type: "text";
                text: string;
            }[];
            name?: string | null;
            annotations?: unknown;
            tool_call_id?: string | null;
        } | {
            /** @constant */
            role: "user";
            content: string | ({
                /** @constant */
                type: "text";
                text: string;
            } | {
                /** @constant */
                type: "image_url";
                image_url: {
                    /** @description data:image/png;base64,… */
                    url: string;
                    /** @enum {unknown} */
                    detail?: "auto" | null;
                };
            })[];
            name?: string | null;
            annotations?: unknown;
            tool_call_id?: string | null;
        } | {
            /** @constant */
            role: "tool";
            content: string | {
                /** @constant */
                type: "text";
                text: string;
            }[];
            tool_call_id: string;
            name?: string | null;
            annotations?: unknown;
        } | {
            /** @constant */
            role: "assistant";
            content: string | {
                /** @constant */
                type: "text";
                text: string;
            }[];
            name?: string | null;
            annotations?: unknown;
            tool_call_id?: string | null;
            reasoning_content?: string | null;
            tool_calls?: {
                id: string;
                /** @constant */
                type?: "function";
                function: {
                    name: string;
                    /** @description a JSON object */
                    arguments: string;
                };
            }[] | null;
        } | {
            /** @constant */
            role: "assistant";
            tool_calls: {
                id: string;
                /** @constant */
                type?: "function";
                function: {
                    name: string;
                    /** @description a JSON object */
                    arguments: string;
                };
            }[];
            name?: string | null;
            annotations?: unknown;
            tool_call_id?: string | null;
            content?: null;
            reasoning_content?: string | null;
        };
        ChatRequest: {
            model: string;
            messages: components["schemas"]["Message"][];
            max_tokens?: number | null;
            max_completion_tokens?: number | null;
            logprobs?: boolean | null;
            top_logprobs?: number | null;
            n?: number | null;
            stream?: boolean | null;
            stop?: string | string[] | null;
            stream_options?: {
                include_usage?: boolean | null;
                /** @enum {unknown} */
                include_obfuscation?: false | null;
            } | null;
            logit_bias?: {
                [key: string]: number;
            } | null;
            temperature?: number | null;
            top_k?: number | null;
            top_p?: number | null;
            min_p?: number | null;
            typical_p?: number | null;
            repeat_penalty?: number | null;
            frequency_penalty?: number | null;
            presence_penalty?: number | null;
            seed?: number | null;
            response_format?: components["schemas"]["ResponseFormat"] | null;
            guided_json?: Record<string, never> | boolean | string | null;
            guided_regex?: string | null;
            guided_choice?: string[] | null;
            guided_grammar?: string | null;
            grammar?: string | null;
            user?: string | null;
            metadata?: Record<string, never> | null;
            store?: boolean | null;
            service_tier?: string | null;
            prompt_cache_key?: string | null;
            prompt_cache_retention?: string | null;
            safety_identifier?: string | null;
            modalities?: "text"[] | null;
            /** @enum {unknown} */
            verbosity?: "medium" | null;
            prediction?: Record<string, never> | null;
            tools?: components["schemas"]["Tool"][] | null;
            tool_choice?: components["schemas"]["ToolChoice"] | null;
            parallel_tool_calls?: boolean | null;
            /** @enum {unknown} */
            reasoning_effort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | null;
            chat_template_kwargs?: Record<string, never> | null;
        };
        ChatCompletion: {
            id: string;
            /** @constant */
            object: "chat.completion";
            created: number;
            model: string;
            usage: components["schemas"]["Usage"];
            choices: {
                index: number;
                logprobs: {
                    content: {
                        token: string;
                        logprob: number;
                        bytes: number[];
                        top_logprobs: {
                            token: string;
                            logprob: number;
                            bytes: number[];
                        }[];
                    }[];
                    refusal: null;
                } | null;
                /** @enum {unknown} */
                finish_reason: "stop" | "length" | "tool_calls";
                message: {
                    /** @constant */
                    role: "assistant";
                    content: string | null;
                    refusal: null;
                    reasoning_content?: string;
                    tool_calls?: {
                        id: string;
                        /** @constant */
                        type: "function";
                        function: {
                            name: string;
                            arguments: string;
                        };
                    }[];
                };
            }[];
            timings?: {
                draft_n: number;
                draft_n_accepted: number;
            };
        };
        ChatCompletionChunk: {
            id: string;
            /** @constant */
            object: "chat.completion.chunk";
            created: number;
            model: string;
            choices: {
                index: number;
                logprobs: {
                    content: {
                        token: string;
                        logprob: number;
                        bytes: number[];
                        top_logprobs: {
                            token: string;
                            logprob: number;
                            bytes: number[];
                        }[];
                    }[];
                    refusal: null;
                } | null;
                /** @enum {unknown} */
                finish_reason: "stop" | "length" | "tool_calls" | null;
                delta: {
                    /** @constant */
                    role?: "assistant";
                    content?: string;
                    reasoning_content?: string;
                    tool_calls?: {
                        index: number;
                        function: {
                            arguments: string;
                            name?: string;
                        };
                        id?: string;
                        /** @constant */
                        type?: "function";
                    }[];
                };
            }[];
            usage?: components["schemas"]["Usage"] | null;
            timings?: {
                draft_n: number;
                draft_n_accepted: number;
            };
        } | components["schemas"]["Error"];
        CompletionRequest: {
            model: string;
            prompt: string | number[] | (string | number[])[];
            max_tokens?: number | null;
            logprobs?: number | null;
            echo?: boolean | null;
            suffix?: string | null;
            best_of?: number | null;
            n?: number | null;
            stream?: boolean | null;
            stop?: string | string[] | null;
            stream_options?: {
                include_usage?: boolean | null;
                /** @enum {unknown} */
                include_obfuscation?: false | null;
            } | null;
            logit_bias?: {
                [key: string]: number;
            } | null;
            temperature?: number | null;
            top_k?: number | null;
            top_p?: number | null;
            min_p?: number | null;
            typical_p?: number | null;
            repeat_penalty?: number | null;
            frequency_penalty?: number | null;
            presence_penalty?: number | null;
            seed?: number | null;
            response_format?: components["schemas"]["ResponseFormat"] | null;
            guided_json?: Record<string, never> | boolean | string | null;
            guided_regex?: string | null;
            guided_choice?: string[] | null;
            guided_grammar?: string | null;
            grammar?: string | null;
            user?: string | null;
            metadata?: Record<string, never> | null;
            store?: boolean | null;
            service_tier?: string | null;
            prompt_cache_key?: string | null;
            prompt_cache_retention?: string | null;
            safety_identifier?: string | null;
        };
        Completion: {
            id: string;
            /** @constant */
            object: "text_completion";
            created: number;
            model: string;
            usage: components["schemas"]["Usage"];
            choices: {
                index: number;
                text: string;
                logprobs: {
                    tokens: string[];
                    token_logprobs: (number | null)[];
                    top_logprobs: ({
                        [key: string]: number;
                    } | null)[];
                    text_offset: number[];
                } | null;
                /** @enum {unknown} */
                finish_reason: "stop" | "length" | "tool_calls";
            }[];
            timings?: {
                draft_n: number;
                draft_n_accepted: number;
            };
        };
        CompletionChunk: {
            id: string;
            /** @constant */
            object: "text_completion";
            created: number;
            model: string;
            choices: {
                index: number;
                text: string;
                logprobs: {
                    tokens: string[];
                    token_logprobs: (number | null)[];
                    top_logprobs: ({
                        [key: string]: number;
                    } | null)[];
                    text_offset: number[];
                } | null;
                /** @enum {unknown} */
                finish_reason: "stop" | "length" | "tool_calls" | null;
            }[];
            usage?: components["schemas"]["Usage"] | null;
            timings?: {
                draft_n: number;
                draft_n_accepted: number;
            };
        } | components["schemas"]["Error"];
        EmbeddingsRequest: {
            model: string;
            input: string | number[] | (string | number[])[];
            /** @enum {unknown} */
            encoding_format?: "float" | "base64" | null;
            user?: string | null;
            dimensions?: number | null;
        };
        Embeddings: {
            /** @constant */
            object: "list";
            model: string;
            usage: {
                prompt_tokens: number;
                total_tokens: number;
            };
            data: {
                /** @constant */
                object: "embedding";
                index: number;
                embedding: number[] | string;
            }[];
        };
        RerankRequest: {
            model: string;
            query: string;
            documents: (string | {
                text: string;
            })[];
            top_n?: number | null;
            return_documents?: boolean | null;
            user?: string | null;
        };
        Rerank: {
            model: string;
            results: {
                index: number;
                relevance_score: number;
                document?: {
                    text: string;
                };
            }[];
            usage: {
                prompt_tokens: number;
                total_tokens: number;
            };
        };
        TokenizeRequest: {
            content: string;
            model?: string | null;
            add_special?: boolean | null;
            parse_special?: boolean | null;
        };
        Tokens: {
            tokens: number[];
        };
        File: {
            id: string;
            /** @constant */
            object: "file";
            bytes: number;
            created_at: number;
            expires_at: number;
            filename: string;
            /** @enum {unknown} */
            purpose: "batch" | "batch_output";
            /** @constant */
            status: "processed";
            status_details: null;
        };
        FileForm: {
            /** @constant */
            purpose: "batch";
            file: string;
        };
        BatchRequest: {
            input_file_id: string;
            /** @enum {unknown} */
            endpoint: "/v1/chat/completions" | "/v1/completions" | "/v1/embeddings";
            completion_window: string;
            metadata?: Record<string, never> | null;
        };
        Batch: {
            id: string;
            /** @constant */
            object: "batch";
            endpoint: string;
            input_file_id: string;
            completion_window: string;
            /** @enum {unknown} */
            status: "in_progress" | "completed" | "failed" | "expired" | "cancelled";
            errors: {
                /** @constant */
                object: "list";
                data: {
                    code: string;
                    param: null;
                    line: number | null;
                    message: string;
                }[];
            } | null;
            output_file_id: string | null;
            error_file_id: string | null;
            created_at: number;
            expires_at: number;
            in_progress_at: number | null;
            finalizing_at: number | null;
            completed_at: number | null;
            failed_at: number | null;
            expired_at: number | null;
            cancelling_at: number | null;
            cancelled_at: number | null;
            request_counts: {
                total: number;
                completed: number;
                failed: number;
            };
            metadata: Record<string, never> | null;
        };
        DetokenizeRequest: {
            tokens: number[];
            model?: string | null;
        };
        DetokenizedText: {
            content: string;
        };
        ResponseRequest: {
            model: string;
            input: string | components["schemas"]["ResponseItem"][];
            instructions?: string | null;
            previous_response_id?: string | null;
            stream?: boolean | null;
            temperature?: number | null;
            top_p?: number | null;
            max_output_tokens?: number | null;
            tools?: {
                /** @constant */
                type: "function";
                name: string;
                description?: string | null;
                parameters?: Record<string, never> | null;
                strict?: boolean | null;
            }[] | null;
            tool_choice?: ("none" | "auto" | "required") | {
                name: string;
            } | null;
            parallel_tool_calls?: boolean | null;
            reasoning?: {
                /** @enum {unknown} */
                effort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | null;
            } | null;
            text?: {
                format?: components["schemas"]["ResponseTextFormat"] | null;
                /** @enum {unknown} */
                verbosity?: "medium" | null;
            } | null;
            metadata?: Record<string, never> | null;
            store?: boolean | null;
            user?: string | null;
            service_tier?: string | null;
            /** @enum {unknown} */
            truncation?: "disabled" | null;
            prompt_cache_key?: string | null;
            safety_identifier?: string | null;
            include?: unknown[] | null;
            /** @enum {unknown} */
            background?: false | null;
            prompt_cache_retention?: string | null;
            stream_options?: Record<string, never> | null;
        };
        ResponseItem: {
            /** @enum {unknown} */
            type?: "message" | null;
            /** @constant */
            role: "user";
            content: string | ({
                /** @enum {unknown} */
                type: "input_text" | "output_text";
                text: string;
            } | {
                /** @constant */
                type: "input_image";
                /** @description data:image/png;base64,… */
                image_url: string;
                /** @enum {unknown} */
                detail?: "auto" | null;
            })[];
        } | {
            /** @enum {unknown} */
            type?: "message" | null;
            /** @enum {unknown} */
            role: "assistant" | "system" | "developer";
            content: string | {
                /** @enum {unknown} */
                type: "input_text" | "output_text";
                text: string;
            }[];
        } | {
            /** @constant */
            type: "function_call";
            call_id: string;
            name: string;
            arguments: string;
        } | {
            /** @constant */
            type: "function_call_output";
            call_id: string;
            output: string | {
                /** @enum {unknown} */
                type: "input_text" | "output_text";
                text: string;
            }[];
        } | {
            /** @constant */
            type: "reasoning";
        };
        ResponseTextFormat: {
            /** @constant */
            type: "text";
        } | {
            /** @constant */
            type: "json_object";
        } | {
            /** @constant */
            type: "json_schema";
            name?: unknown;
            description?: unknown;
            strict?: unknown;
            schema?: Record<string, never> | boolean | null;
        };
        ResponseOutputItem: {
            /** @constant */
            type: "message";
            id: string;
            /** @constant */
            role: "assistant";
            /** @enum {unknown} */
            status: "in_progress" | "completed" | "incomplete";
            content: {
                /** @constant */
                type: "output_text";
                annotations: unknown[];
                logprobs: unknown[];
                text: string;
            }[];
        } | {
            /** @constant */
            type: "reasoning";
            id: string;
            summary: unknown[];
            content: {
                /** @constant */
                type: "reasoning_text";
                text: string;
            }[];
        } | {
            /** @constant */
            type: "function_call";
            id: string;
            call_id: string;
            name: string;
            arguments: string;
            /** @enum {unknown} */
            status: "in_progress" | "completed" | "incomplete";
        };
        Response: {
            id: string;
            /** @constant */
            object: "response";
            created_at: number;
            /** @enum {unknown} */
            status: "in_progress" | "completed" | "incomplete";
            error: null;
            incomplete_details: {
                /** @constant */
                reason: "max_output_tokens";
            } | null;
            instructions: null;
            metadata: Record<string, never>;
            model: string;
            parallel_tool_calls: boolean;
            tools: unknown[];
            temperature: number;
            top_p: number;
            tool_choice: ("none" | "auto" | "required") | {
                /** @constant */
                type: "function";
                name: string;
            };
            output: components["schemas"]["ResponseOutputItem"][];
            usage?: {
                input_tokens: number;
                input_tokens_details: {
                    cached_tokens: number;
                };
                output_tokens: number;
                output_tokens_details: {
                    reasoning_tokens: number;
                };
                total_tokens: number;
            };
        };
        ResponseEvent: {
            /** @constant */
            type: "response.created";
            sequence_number: number;
            response: components["schemas"]["Response"];
        } | {
            /** @constant */
            type: "response.in_progress";
            sequence_number: number;
            response: components["schemas"]["Response"];
        } | {
            /** @constant */
            type: "response.completed";
            sequence_number: number;
            response: components["schemas"]["Response"];
        } | {
            /** @constant */
            type: "response.incomplete";
            sequence_number: number;
            response: components["schemas"]["Response"];
        } | {
            /** @constant */
            type: "response.output_item.added";
            sequence_number: number;
            output_index: number;
            item: components["schemas"]["ResponseOutputItem"];
        } | {
            /** @constant */
            type: "response.output_item.done";
            sequence_number: number;
            output_index: number;
            item: components["schemas"]["ResponseOutputItem"];
        } | {
            /** @constant */
            type: "response.content_part.added";
            sequence_number: number;
            output_index: number;
            item_id: string;
            content_index: number;
            part: {
                /** @constant */
                type: "output_text";
                annotations: unknown[];
                logprobs: unknown[];
                text: string;
            } | {
                /** @constant */
                type: "reasoning_text";
                text: string;
            };
        } | {
            /** @constant */
            type: "response.content_part.done";
            sequence_number: number;
            output_index: number;
            item_id: string;
            content_index: number;
            part: {
                /** @constant */
                type: "output_text";
                annotations: unknown[];
                logprobs: unknown[];
                text: string;
            } | {
                /** @constant */
                type: "reasoning_text";
                text: string;
            };
        } | {
            /** @constant */
            type: "response.output_text.delta";
            sequence_number: number;
            output_index: number;
            item_id: string;
            content_index: number;
            delta: string;
            logprobs: unknown[];
        } | {
            /** @constant */
            type: "response.output_text.done";
            sequence_number: number;
            output_index: number;
            item_id: string;
            content_index: number;
            text: string;
            logprobs: unknown[];
        } | {
            /** @constant */
            type: "response.reasoning_text.delta";
            sequence_number: number;
            output_index: number;
            item_id: string;
            content_index: number;
            delta: string;
        } | {
            /** @constant */
            type: "response.reasoning_text.done";
            sequence_number: number;
            output_index: number;
            item_id: string;
            content_index: number;
            text: string;
        } | {
            /** @constant */
            type: "response.function_call_arguments.delta";
            sequence_number: number;
            output_index: number;
            item_id: string;
            delta: string;
        } | {
            /** @constant */
            type: "response.function_call_arguments.done";
            sequence_number: number;
            output_index: number;
            item_id: string;
            arguments: string;
        } | components["schemas"]["Error"];
        AnthropicError: {
            /** @constant */
            type: "error";
            error: {
                type: string;
                message: string;
            };
        };
        AnthropicMessage: {
            /** @constant */
            role: "user";
            content: string | ({
                /** @constant */
                type: "text";
                text: string;
            } | {
                /** @constant */
                type: "image";
                source: {
                    /** @constant */
                    type: "base64";
                    media_type: string;
                    /** @description a PNG, JPEG or WebP picture in base64 */
                    data: string;
                };
            } | {
                /** @constant */
                type: "tool_result";
                tool_use_id: string;
                content?: string | {
                    /** @constant */
                    type: "text";
                    text: string;
                }[] | null;
            })[];
        } | {
            /** @constant */
            role: "assistant";
            content: string | ({
                /** @constant */
                type: "text";
                text: string;
            } | {
                /** @constant */
                type: "thinking";
                thinking: string;
            } | {
                /** @constant */
                type: "tool_use";
                id: string;
                name: string;
                input: Record<string, never>;
            })[];
        };
        MessagesRequest: {
            model: string;
            messages: components["schemas"]["AnthropicMessage"][];
            max_tokens: number;
            system?: string | {
                /** @constant */
                type: "text";
                text: string;
            }[] | null;
            stream?: boolean | null;
            temperature?: number | null;
            top_p?: number | null;
            top_k?: number | null;
            tools?: {
                /** @enum {unknown} */
                type?: "custom" | null;
                name: string;
                description?: string | null;
                input_schema?: Record<string, never> | null;
                strict?: boolean | null;
            }[] | null;
            tool_choice?: {
                /** @enum {unknown} */
                type: "auto" | "any" | "none";
            } | {
                /** @constant */
                type: "tool";
                name: string;
            } | null;
            metadata?: Record<string, never> | null;
            thinking?: {
                /** @enum {unknown} */
                type: "enabled" | "adaptive" | "disabled";
            } | null;
            service_tier?: string | null;
            stop_sequences?: string[] | null;
            cache_control?: Record<string, never> | null;
        };
        CountTokensRequest: {
            model: string;
            messages: components["schemas"]["AnthropicMessage"][];
            system?: string | {
                /** @constant */
                type: "text";
                text: string;
            }[] | null;
            stream?: boolean | null;
            temperature?: number | null;
            top_p?: number | null;
            top_k?: number | null;
            tools?: {
                /** @enum {unknown} */
                type?: "custom" | null;
                name: string;
                description?: string | null;
                input_schema?: Record<string, never> | null;
                strict?: boolean | null;
            }[] | null;
            tool_choice?: {
                /** @enum {unknown} */
                type: "auto" | "any" | "none";
            } | {
                /** @constant */
                type: "tool";
                name: string;
            } | null;
            metadata?: Record<string, never> | null;
            thinking?: {
                /** @enum {unknown} */
                type: "enabled" | "adaptive" | "disabled";
            } | null;
            service_tier?: string | null;
            stop_sequences?: string[] | null;
            cache_control?: Record<string, never> | null;
            max_tokens?: number | null;
        };
        Messages: {
            id: string;
            /** @constant */
            type: "message";
            /** @constant */
            role: "assistant";
            model: string;
            content: ({
                /** @constant */
                type: "text";
                text: string;
            } | {
                /** @constant */
                type: "thinking";
                thinking: string;
                signature: string;
            } | {
                /** @constant */
                type: "tool_use";
                id: string;
                name: string;
                input: Record<string, never>;
            })[];
            /** @enum {unknown} */
            stop_reason: "max_tokens" | "tool_use" | "stop_sequence" | "end_turn" | null;
            stop_sequence: string | null;
            usage: {
                input_tokens: number;
                cache_creation_input_tokens: number;
                cache_read_input_tokens: number;
                output_tokens: number;
            };
        };
        MessagesEvent: {
            /** @constant */
            type: "message_start";
            message: components["schemas"]["Messages"];
        } | {
            /** @constant */
            type: "content_block_start";
            index: number;
            content_block: {
                /** @constant */
                type: "text";
                text: string;
            } | {
                /** @constant */
                type: "thinking";
                thinking: string;
                signature: string;
            } | {
                /** @constant */
                type: "tool_use";
                id: string;
                name: string;
                input: Record<string, never>;
            };
        } | {
            /** @constant */
            type: "content_block_delta";
            index: number;
            delta: {
                /** @constant */
                type: "text_delta";
                text: string;
            } | {
                /** @constant */
                type: "thinking_delta";
                thinking: string;
            } | {
                /** @constant */
                type: "input_json_delta";
                partial_json: string;
            };
        } | {
            /** @constant */
            type: "content_block_stop";
            index: number;
        } | {
            /** @constant */
            type: "message_delta";
            delta: {
                /** @enum {unknown} */
                stop_reason: "max_tokens" | "tool_use" | "stop_sequence" | "end_turn" | null;
                stop_sequence: string | null;
            };
            usage: {
                input_tokens: number;
                cache_creation_input_tokens: number;
                cache_read_input_tokens: number;
                output_tokens: number;
            };
        } | {
            /** @constant */
            type: "message_stop";
        } | components["schemas"]["AnthropicError"];
        OllamaError: {
            error: string;
        };
        OllamaOptions: {
            temperature?: number | null;
            top_p?: number | null;
            top_k?: number | null;
            min_p?: number | null;
            typical_p?: number | null;
            repeat_penalty?: number | null;
            presence_penalty?: number | null;
            frequency_penalty?: number | null;
            seed?: number | null;
            stop?: string | string[] | null;
            num_predict?: number | null;
            num_ctx?: unknown;
            num_keep?: unknown;
            num_batch?: unknown;
            num_gpu?: unknown;
            main_gpu?: unknown;
            num_thread?: unknown;
            use_mmap?: unknown;
            use_mlock?: unknown;
            low_vram?: unknown;
            numa?: unknown;
        };
        OllamaChatRequest: {
            model: string;
            messages: ({
                /** @enum {unknown} */
                role: "system" | "tool" | "developer";
                content: string;
                images?: unknown[] | null;
                tool_name?: string | null;
                tool_call_id?: string | null;
                tool_calls?: unknown[] | null;
            } | {
                /** @constant */
                role: "user";
                content: string;
                images?: string[] | null;
                tool_name?: string | null;
                tool_call_id?: string | null;
                tool_calls?: unknown[] | null;
            } | {
                /** @constant */
                role: "assistant";
                content: string;
                images?: unknown[] | null;
                tool_name?: string | null;
                tool_call_id?: string | null;
                thinking?: string | null;
                tool_calls?: {
                    function: {
                        name: string;
                        arguments?: Record<string, never>;
                    };
                }[] | null;
            } | {
                /** @constant */
                role: "assistant";
                tool_calls: {
                    function: {
                        name: string;
                        arguments?: Record<string, never>;
                    };
                }[];
                images?: unknown[] | null;
                tool_name?: string | null;
                tool_call_id?: string | null;
                thinking?: string | null;
                content?: null;
            })[];
            tools?: components["schemas"]["Tool"][] | null;
            stream?: boolean | null;
            format?: ("" | "json") | Record<string, never> | null;
            think?: boolean | ("none" | "minimal" | "low" | "medium" | "high" | "xhigh") | null;
            options?: components["schemas"]["OllamaOptions"] | null;
            keep_alive?: unknown;
        };
        OllamaChat: {
            model: string;
            created_at: string;
            message: {
                /** @constant */
                role: "assistant";
                content: string;
                thinking?: string;
                tool_calls?: {
                    function: {
                        name: string;
                        arguments: Record<string, never>;
                    };
                }[];
            };
            done: boolean;
            /** @enum {unknown} */
            done_reason?: "stop" | "length";
            total_duration?: number;
            load_duration?: number;
            prompt_eval_count?: number;
            prompt_eval_duration?: number;
            eval_count?: number;
            eval_duration?: number;
        };
        OllamaGenerateRequest: {
            model: string;
            prompt: string;
            name?: string | null;
            system?: string | null;
            suffix?: string | null;
            raw?: boolean | null;
            images?: string[] | null;
            stream?: boolean | null;
            format?: ("" | "json") | Record<string, never> | null;
            think?: boolean | ("none" | "minimal" | "low" | "medium" | "high" | "xhigh") | null;
            options?: components["schemas"]["OllamaOptions"] | null;
            keep_alive?: unknown;
        };
        OllamaGenerate: {
            model: string;
            created_at: string;
            response: string;
            done: boolean;
            thinking?: string;
            /** @enum {unknown} */
            done_reason?: "stop" | "length";
            total_duration?: number;
            load_duration?: number;
            prompt_eval_count?: number;
            prompt_eval_duration?: number;
            eval_count?: number;
            eval_duration?: number;
        };
        OllamaTags: {
            models: {
                name: string;
                model: string;
                modified_at: string;
                size: number;
                digest: string;
                details: {
                    parent_model: string;
                    format: string;
                    family: string;
                    families: string[];
                    parameter_size: string;
                    quantization_level: string;
                };
            }[];
        };
        OllamaRunning: {
            models: {
                name: string;
                model: string;
                modified_at: string;
                size: number;
                digest: string;
                details: {
                    parent_model: string;
                    format: string;
                    family: string;
                    families: string[];
                    parameter_size: string;
                    quantization_level: string;
                };
                expires_at: string;
                size_vram: number;
            }[];
        };
        OllamaPullRequest: {
            model: string;
            name?: string | null;
            stream?: boolean | null;
            /** @enum {unknown} */
            insecure?: false | null;
        } | {
            name: string;
            stream?: boolean | null;
            /** @enum {unknown} */
            insecure?: false | null;
        };
        OllamaPull: {
            status: string;
            digest?: string;
            total?: number;
            completed?: number;
        };
        OllamaShowRequest: {
            model: string;
        } | {
            name: string;
            model?: null;
        };
        OllamaEmbedRequest: {
            model: string;
            input: string | string[];
            name?: string | null;
            truncate?: boolean | null;
            options?: Record<string, never> | null;
            keep_alive?: unknown;
            dimensions?: number | null;
        };
        OllamaEmbed: {
            model: string;
            embeddings: number[][];
            total_duration: number;
            load_duration: number;
            prompt_eval_count: number;
        };
        OllamaEmbeddingsRequest: {
            model: string;
            prompt: string;
            name?: string | null;
            options?: Record<string, never> | null;
            keep_alive?: unknown;
        };
        OllamaShow: {
            modelfile: string;
            parameters: string;
            system: string;
            template: string;
            details: {
                parent_model: string;
                format: string;
                family: string;
                families: string[];
                parameter_size: string;
                quantization_level: string;
            };
            model_info: Record<string, never>;
            capabilities: string[];
        };
        LlamaCompletionRequest: {
            prompt: string | number[];
            model?: string | null;
            n_predict?: number | null;
            temperature?: number | null;
            top_k?: number | null;
            top_p?: number | null;
            min_p?: number | null;
            typical_p?: number | null;
            repeat_penalty?: number | null;
            presence_penalty?: number | null;
            frequency_penalty?: number | null;
            seed?: number | null;
            stop?: string | string[] | null;
            stream?: boolean | null;
            cache_prompt?: unknown;
            id_slot?: unknown;
            timings_per_token?: unknown;
        };
        InfillRequest: {
            input_prefix?: string | null;
            input_suffix?: string | null;
            prompt?: string | null;
            input_extra?: unknown[] | null;
            model?: string | null;
            n_predict?: number | null;
            temperature?: number | null;
            top_k?: number | null;
            top_p?: number | null;
            min_p?: number | null;
            typical_p?: number | null;
            repeat_penalty?: number | null;
            presence_penalty?: number | null;
            frequency_penalty?: number | null;
            seed?: number | null;
            stop?: string | string[] | null;
            stream?: boolean | null;
            cache_prompt?: unknown;
            id_slot?: unknown;
            timings_per_token?: unknown;
        };
        LlamaCompletion: {
            index: number;
            stop: boolean;
            content: string;
            /** @enum {unknown} */
            stop_type?: "word" | "limit" | "eos";
            stopping_word?: string;
            model?: string;
            tokens_predicted?: number;
            tokens_evaluated?: number;
            tokens_cached?: number;
            truncated?: boolean;
            timings?: {
                draft_n: number;
                draft_n_accepted: number;
            };
        };
        LlamaCompletionEvent: components["schemas"]["LlamaCompletion"] | components["schemas"]["Error"];
        TemplateRequest: {
            messages: components["schemas"]["Message"][];
            model?: string | null;
            tools?: components["schemas"]["Tool"][] | null;
            chat_template_kwargs?: Record<string, never> | null;
        };
        Template: {
            prompt: string;
        };
        Props: {
            default_generation_settings: {
                n_ctx: number;
            };
            total_slots: number;
            model_alias: string | null;
            build_info: string;
        };
        Slots: {
            id: number;
            n_ctx: number;
            is_processing: boolean;
        }[];
        Health: {
            /** @constant */
            status: "ok";
        } | {
            /** @constant */
            status: "ok";
            model: string;
            slots: {
                total: number;
                busy: number;
            };
            queued: number;
            cells?: {
                total: number;
                free: number;
                shared: number;
            };
            parked?: number;
        } | {
            /** @constant */
            status: "ok";
            models: {
                model: string;
                slots: {
                    total: number;
                    busy: number;
                };
                queued: number;
                cells?: {
                    total: number;
                    free: number;
                    shared: number;
                };
                parked?: number;
            }[];
            slots: {
                total: number;
                busy: number;
            };
            queued: number;
            cells?: {
                total: number;
                free: number;
                shared: number;
            };
            parked?: number;
        };
        RequestRecord: {
            id: string;
            model: string | null;
            client: string | null;
            started_ms: number;
            outcome: string | null;
            prompt_tokens: number | null;
            cached_tokens: number | null;
            generated_tokens: number;
            driver: string | null;
            queue_ms: number | null;
            prefill_ms: number | null;
            decode_ms: number | null;
            slowest_stage_ms: number | null;
            back_ms: number | null;
            ttft_ms: number | null;
            total_ms: number | null;
            decode_tokens_per_s: number | null;
            prefill_tokens_per_s: number | null;
            forecast_decode_tokens_per_s: number | null;
            joules: number | null;
            stages: {
                node: string | null;
                device: string | null;
                first_layer: number;
                n_layers: number;
                compute_ms: number | null;
                wait_ms: number | null;
                link_ms: number | null;
                link_bytes: number | null;
            }[];
            pauses: {
                at_ms: number;
                ms: number;
                over: boolean;
                why: string | null;
            }[];
        };
        RequestRecords: {
            under_way: components["schemas"]["RequestRecord"][];
            finished: components["schemas"]["RequestRecord"][];
        };
        Session: {
            needs_token: boolean;
            signed_in: boolean;
            token: string | null;
            scopes: ("read" | "generate" | "models" | "admin")[];
            node: {
                id: string | null;
                name: string | null;
            };
            cluster: boolean;
            version: string;
            api_base: string;
        };
        Pass: {
            pass: string | null;
            url: string;
            expires_ms: number | null;
        };
        Status: {
            node: {
                id: string;
                name: string;
            } & {
                [key: string]: unknown;
            };
            version: string;
            waiting: boolean;
            cluster: Record<string, never> | null;
            listening?: string[];
            models?: Record<string, never>[];
            instances?: Record<string, never>[];
        } & {
            [key: string]: unknown;
        };
        Nodes: {
            nodes: ({
                id: string;
                name: string;
                self: boolean;
                state: string;
                leads: boolean;
                votes: boolean;
                devices: Record<string, never>[];
                words?: string | null;
                role?: string | null;
                version?: string | null;
                addresses?: string[];
                heard_ms?: number | null;
                dial_address?: string | null;
                dial_problem?: string | null;
            } & {
                [key: string]: unknown;
            })[];
        } & {
            [key: string]: unknown;
        };
        Links: {
            links: Record<string, never>[];
        } & {
            [key: string]: unknown;
        };
        Alerts: {
            alerts: Record<string, never>[];
            cleared: Record<string, never>[];
            kinds?: Record<string, never>[];
            muted?: Record<string, never>[];
        } & {
            [key: string]: unknown;
        };
    };
    responses: {
        /** @description Refused: the text says why, and what to do */
        Error: {
            content: {
                "application/json": components["schemas"]["Error"];
            };
        };
        /** @description Refused: the text says why, and what to do */
        AnthropicError: {
            content: {
                "application/json": components["schemas"]["AnthropicError"];
            };
        };
        /** @description Refused: the text says why, and what to do */
        OllamaError: {
            content: {
                "application/json": components["schemas"]["OllamaError"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
