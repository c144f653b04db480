"""`make_gguf.py FILE`: a Llama with random weights and a vocabulary of bytes, which answers in milliseconds."""

import sys

import gguf
import numpy as np

WIDTH, HEADS, LAYERS, INNER, CONTEXT = 64, 4, 2, 128, 512


def main(path):
    rng = np.random.default_rng(1)
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    kinds = [2, 3, 3, *[6] * 256]  # unknown, control, control, bytes
    out = gguf.GGUFWriter(path, "llama")
    out.add_name("tiny")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores([0.0] * len(tokens))
    out.add_token_types(kinds)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)

    def weights(name, *shape):
        out.add_tensor(name, (rng.standard_normal(shape) * 0.05).astype(np.float32))

    weights("token_embd.weight", len(tokens), WIDTH)
    weights("output_norm.weight", WIDTH)
    weights("output.weight", len(tokens), WIDTH)
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        weights(f"blk.{layer}.attn_norm.weight", WIDTH)
        weights(f"blk.{layer}.ffn_norm.weight", WIDTH)
        weights(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        weights(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        weights(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main(sys.argv[1])
