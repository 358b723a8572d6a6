"""Makes tiny models with random weights, their tokenizers and a chat template, without a download.

usage: models.py <folder> <plain|hybrid> <bytes of a token>
"""

import pydoc_data.topics
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import traffic

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
SPECIAL = ["<|pad|>", "<|bos|>", "<|eos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
MAX_TOKENS = 8192


def train(vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        pydoc_data.topics.topics.values(),
        trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        ),
    )
    return tokenizer


def fit(text, size):
    """Returns the tokenizer whose tokens of the text are closest to a size in bytes: the larger its vocabulary, the longer its tokens."""
    tokenizers = [train(int(270 * 1.07**step)) for step in range(40)]
    return min(tokenizers, key=lambda tokenizer: abs(len(text) / len(tokenizer.encode(text).ids) - size))


def build(kind, tokenizer):
    common = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_attention_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": MAX_TOKENS,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    torch.manual_seed(1)
    if kind == "plain":
        return LlamaForCausalLM(LlamaConfig(**common, num_hidden_layers=2, num_key_value_heads=2, tie_word_embeddings=False))
    # As hybrid models have: five layers that attend to a sliding window for one that attends to everything.
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            **common,
            num_hidden_layers=6,
            num_key_value_heads=1,
            sliding_window=512,
            layer_types=["sliding_attention"] * 5 + ["full_attention"],
        )
    )


def main(folder, kind, size):
    text = " ".join(traffic.WORDS)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fit(text, float(size)), bos_token="<|bos|>", eos_token="<|eos|>", pad_token="<|pad|>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(folder)
    build(kind, tokenizer).to(torch.bfloat16).save_pretrained(folder)
    print(f"{folder}: {len(text) / len(tokenizer(text)['input_ids']):.2f} bytes a token")


main(*sys.argv[1:])
