/* tiny_text.c - vocabulary, merges and chat template of the tiny model. */
#include "tests/tiny/tiny_model.h"

#include "model/byte_map.h"

#include <string.h>

#define S "\xc4\xa0" /* a space in the byte alphabet */

static const char *const controls[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|aside|>"};

/* Each side is a single byte or made by an earlier line; the joined text is a token of its own. */
static const char *const merges[] = {
    "e " S, "t h",  S " t",  "a n",   "i n",    "e r",   "o u",    "r e",   "l l",    "s " S,
    "o n",  "th e", "an d",  S " th", "in g",   "e n",   "a t",    "e s",   "o r",    "i t",
    "w " S, S " a", "ou r",  "s t",   "en t",   "h e",   S " the", "at i",  "ati on", "l y",
    "e d",  S " w", S "w e", "he ll", "hell o", S " " S, "w or",   "wor l", "worl d", S " o",
};

#define N_CONTROLS (sizeof controls / sizeof controls[0])
#define N_MERGES (sizeof merges / sizeof merges[0])
_Static_assert(N_CONTROLS + 256 + N_MERGES == TINY_VOCAB,
               "the vocabulary is what the tensors have rows for");

static const char chat_template[] =
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe brief. You are made from a seed.<|im_end|>\n' }}"
    "{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

const char *tiny_model_template(void)
{
    return chat_template;
}

static void add_tokens(struct gguf_builder *b)
{
    char s[2];
    gguf_builder_array(b, "tokenizer.ggml.tokens", 8, TINY_VOCAB);
    for (size_t i = 0; i < N_CONTROLS; i++)
        gguf_builder_element(b, controls[i], strlen(controls[i]));
    for (unsigned i = 0; i < 256; i++)
        gguf_builder_element(b, s, byte_map_encode((uint8_t)i, s));
    for (size_t i = 0; i < N_MERGES; i++) {
        char joined[32] = "";
        const char *space = strchr(merges[i], ' ');
        size_t left = (size_t)(space - merges[i]);
        memcpy(joined, merges[i], left);
        strcpy(joined + left, space + 1);
        gguf_builder_element(b, joined, strlen(joined));
    }
}

void tiny_model_tokenizer(struct gguf_builder *b)
{
    gguf_builder_str(b, "tokenizer.ggml.model", "gpt2");
    gguf_builder_str(b, "tokenizer.ggml.pre", "smollm");
    gguf_builder_bool(b, "tokenizer.ggml.add_bos_token", false);
    gguf_builder_bool(b, "tokenizer.ggml.add_space_prefix", false);
    add_tokens(b);
    gguf_builder_array(b, "tokenizer.ggml.token_type", 5, TINY_VOCAB);
    for (int32_t i = 0; i < TINY_VOCAB; i++)
        gguf_builder_raw(b, &(int32_t){i < (int32_t)N_CONTROLS ? 3 : 1}, 4);
    gguf_builder_array(b, "tokenizer.ggml.merges", 8, N_MERGES);
    for (size_t i = 0; i < N_MERGES; i++)
        gguf_builder_element(b, merges[i], strlen(merges[i]));
    gguf_builder_u32(b, "tokenizer.ggml.bos_token_id", TINY_IM_START);
    gguf_builder_u32(b, "tokenizer.ggml.eos_token_id", TINY_IM_END);
    gguf_builder_u32(b, "tokenizer.ggml.unknown_token_id", TINY_ENDOFTEXT);
    gguf_builder_u32(b, "tokenizer.ggml.padding_token_id", TINY_IM_END);
    gguf_builder_str(b, "tokenizer.chat_template", chat_template);
}
