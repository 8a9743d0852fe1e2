"""The embedded models' tokenizer: byte-level BPE in which every digit and word of the small world is one token.

Knows texts only. Any text can be encoded (all bytes are in the alphabet) and decoding gives it back exactly.
"""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, END, USER, ASSISTANT, MASK = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|mask|>"
SPECIAL_TOKENS = (PAD, END, USER, ASSISTANT, MASK)
VOCAB_SIZE = 512
PIECES = r"\\boxed\{| ?\d| ?[A-Za-z]+| ?[^\sA-Za-z\d]|\s+"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train the tokenizer on sample texts of the world."""
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pieces.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        pad_token=PAD,
        eos_token=END,
        mask_token=MASK,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
