"""The embedded models' tokenizer: byte-level BPE in which every word of the small world is one token.

Knows texts only. It splits text as Qwen2's tokenizer does (digits one by one, spaces before them apart), because
loaders take Qwen2's splitting for every model of that type, whatever its tokenizer file says.
"""

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

PAD, END, USER, ASSISTANT, MASK = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|mask|>"
SPECIAL_TOKENS = (PAD, END, USER, ASSISTANT, MASK)
VOCAB_SIZE = 512
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def build_tokenizer(
    texts: Iterable[str], vocab_size: int = VOCAB_SIZE, alphabet: Sequence[str] | None = None
) -> PreTrainedTokenizerFast:
    """Train the tokenizer on sample texts of the world; without an alphabet it can spell any text, byte by byte."""
    qwen2 = Qwen2Tokenizer().backend_tokenizer
    pieces = Tokenizer(models.BPE())
    pieces.normalizer, pieces.pre_tokenizer, pieces.decoder = qwen2.normalizer, qwen2.pre_tokenizer, qwen2.decoder
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet is None else list(alphabet),
        show_progress=False,
    )
    pieces.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        pad_token=PAD,
        eos_token=END,
        unk_token=END,
        mask_token=MASK,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
