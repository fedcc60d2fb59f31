"""Knobs of how requests are sent, the same for a running server and for one that is started."""

from __future__ import annotations

from modeldyno.base.job.knob import Knob
from modeldyno.base.job.prompt_images import IMAGE_SIZE, IMAGES
from modeldyno.base.job.prompt_lengths import (
    FRESH,
    OUTPUT_TOKENS,
    PREFIX_CACHE,
    PRIMED,
    PROMPT_TOKENS,
    SHARED_PREFIX,
    TOKENIZER,
)
from modeldyno.engine.interfaces.request_target import COMPRESSIONS
from modeldyno.serving.backends.shared_regions import SHARED_MEMORY, SYSTEM, SYSTEM_BOTH

COMPRESSION_KNOB = Knob(
    name="compression",
    choices=COMPRESSIONS,
    sentence="Compress requests before the load, and accept compressed answers.",
)
SHARED_MEMORY_KNOB = Knob(
    name=SHARED_MEMORY,
    choices=(SYSTEM, SYSTEM_BOTH),
    sentence="Inputs, or outputs as well, in shared memory of this machine.",
)
REPLICAS_KNOB = Knob(
    name="replicas",
    sentence="URLs of further servers of the same model, separated by commas; requests go to each in turn.",
)
SERVER_METRICS, RESET_CACHE = "server_metrics", "reset_cache"
"""Knobs of a server of language models."""
PROTOCOL_KNOBS: dict[tuple[str, ...], tuple[Knob, ...]] = {
    ("kserve-http",): (
        Knob(
            name="binary",
            kind=bool,
            sentence="Send and request tensors as raw bytes, not as JSON; as the server supports if not set.",
        ),
    ),
    ("kserve-http", "kserve-grpc"): (COMPRESSION_KNOB, SHARED_MEMORY_KNOB),
    ("tensorflow-http",): (
        Knob(
            name="format",
            choices=("row", "columnar"),
            sentence="Send a list of instances (row), or a list for each input (columnar).",
        ),
    ),
    ("tensorflow-http", "tensorflow-grpc"): (
        Knob(name="signature", sentence="Signature of the TensorFlow model to call."),
    ),
    ("torchserve",): (
        Knob(
            name="content",
            choices=("json", "raw"),
            sentence="Send the inputs by name as JSON, or the raw bytes of the only input.",
        ),
    ),
    ("openai",): (
        Knob(
            name="endpoint",
            choices=("completions", "chat", "responses", "messages", "embeddings"),
            sentence="API endpoint to call: OpenAI's, or Anthropic's messages.",
        ),
        Knob(
            name=PROMPT_TOKENS,
            sentence="Tokens of each random prompt: 512, 512~64 (normal), 512~x1.5, 256..1024, @pairs.csv.",
            aliases=("isl", "input_tokens"),
        ),
        Knob(
            name=OUTPUT_TOKENS,
            sentence="Most tokens of each answer, drawn in the same way; `max_tokens` is one number for all.",
            aliases=("osl",),
        ),
        Knob(
            name=SHARED_PREFIX,
            kind=int,
            low=0,
            sentence="Tokens at the beginning of prompt_tokens that are the same in all, as a system prompt.",
        ),
        Knob(
            name=PREFIX_CACHE,
            choices=(FRESH, PRIMED),
            sentence="Random prompts that are sent again begin anew (fresh, if not set), or stay (primed).",
        ),
        Knob(
            name=TOKENIZER,
            sentence="The model's tokenizer.json, or its folder; else that beside a local model.",
        ),
        Knob(
            name=IMAGES,
            sentence="Random images in each chat, response or message: 1, 1..3, 2~1; 1 if a size is set.",
        ),
        Knob(
            name=IMAGE_SIZE,
            sentence="Width and height of images in pixels: 512x512 if not set; 256..1024 is of each side.",
        ),
        Knob(name="max_tokens", kind=int, low=1, sentence="Maximum number of tokens to generate."),
        Knob(
            name="token_limit",
            choices=("max_tokens", "max_completion_tokens"),
            sentence="Field of a request that has this number; models of OpenAI that reason know the second.",
        ),
        Knob(name="temperature", kind=float, low=0, sentence="Sampling temperature; 0 is greedy decoding."),
        Knob(
            name="extra",
            sentence='A JSON object that is merged into each request, such as {"ignore_eos": true}; null '
            "leaves a field out.",
        ),
    ),
    ("openai", "http"): (
        Knob(
            name="stream",
            kind=bool,
            sentence="Time the pieces of the answer as they are generated; by default with openai alone.",
        ),
        Knob(
            name=SERVER_METRICS,
            sentence="URL of the server's metrics, of vLLM, SGLang, llama.cpp or TGI; /metrics of the server "
            "if not set, none for none.",
        ),
        Knob(
            name=RESET_CACHE,
            sentence="Path that empties the server's prefix cache, which is POSTed to before the load, such "
            "as /reset_prefix_cache of vLLM or /flush_cache of SGLang.",
        ),
    ),
    ("http",): (
        Knob(
            name="method",
            choices=("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
            sentence="HTTP method; POST with a body, GET without.",
        ),
        Knob(name="content_type", sentence="Content type of the body; application/json if not set."),
        Knob(name="body", sentence="Body to send: text, or @file."),
        Knob(name="bodies", sentence="File of bodies to send, one on each line."),
    ),
}
"""The knobs of some protocols; all but the bodies become options of the Endpoint."""
