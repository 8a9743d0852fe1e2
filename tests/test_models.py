"""Names of models to directories, tokenizers as any loader sees them, and GGUF files."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer

from engines.chat import ChatTokenizer
from engines.checkpoints import load_decoder
from engines.embedded.tokenizer import build_tokenizer
from engines.models import resolve_model
from tiny_models import TEXTS, write_model

SAMPLES = ("Mia has 42 coins. First, she finds 17: 2+7=9.", "The answer is \\boxed{59}.", "héllo  wörld\n\n x 12 3\n")


def test_every_loader_sees_the_tokenizer_that_was_trained(tmp_path: Path) -> None:
    trained = build_tokenizer(TEXTS)
    loaded = AutoTokenizer.from_pretrained(write_model(tmp_path))

    for text in SAMPLES:
        assert loaded.encode(text, add_special_tokens=False) == trained.encode(text, add_special_tokens=False)


def test_any_text_survives_encoding_and_decoding(tmp_path: Path) -> None:
    tokenizer = ChatTokenizer(write_model(tmp_path)).tokenizer

    for text in SAMPLES:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_text_grows_as_decoding_all_tokens_would_have_it(tmp_path: Path) -> None:
    chat = ChatTokenizer(write_model(tmp_path))
    growing = chat.growing_text()

    for text in SAMPLES:
        ids = chat.tokenizer.encode(text, add_special_tokens=False)
        growing = chat.growing_text()
        for token in ids:
            growing.add(token)
        assert growing.text == text


def test_a_chat_becomes_a_prompt_that_ends_where_the_answer_begins(tmp_path: Path) -> None:
    chat = ChatTokenizer(write_model(tmp_path))

    ids = chat.prompt_ids([{"role": "user", "content": "hi"}])

    assert chat.tokenizer.decode(ids) == "<|user|>hi<|assistant|>"


def test_a_tokenizer_without_chat_template_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    (folder / "chat_template.jinja").unlink()

    with pytest.raises(ValueError, match="the tokenizer has no chat template"):
        ChatTokenizer(folder)


def test_a_bundled_model_that_is_none_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"model 'embedded:nope' is not bundled; bundled: "):
        resolve_model("embedded:nope")


def write_gguf(path: Path, entries: Mapping[str, int] = {}, *, without: str = "") -> dict[str, NDArray[np.float32]]:
    """A tiny Llama as a GGUF file with a byte-level tokenizer; returns the tensors in it. `entries` are added to it."""
    hidden, heads, layers, vocab = 32, 4, 2, 300
    tokenizer = build_tokenizer(TEXTS)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(layers)
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(48)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("gpt2")
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])][:vocab]
    tokens += [f"<unused{i}>" for i in range(vocab - len(tokens))]
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * vocab)
    known = set(tokens)
    merges = [" ".join(merge) for merge in model["merges"] if set(merge) | {"".join(merge)} <= known]
    writer.add_token_merges(merges)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    rng = np.random.default_rng(0)
    shapes = {"token_embd.weight": (vocab, hidden), "output_norm.weight": (hidden,)}
    for i in range(layers):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{i}.{part}.weight"] = (hidden, hidden)
        shapes |= {f"blk.{i}.ffn_gate.weight": (48, hidden), f"blk.{i}.ffn_up.weight": (48, hidden)}
        shapes |= {f"blk.{i}.ffn_down.weight": (hidden, 48)}
        shapes |= {f"blk.{i}.attn_norm.weight": (hidden,), f"blk.{i}.ffn_norm.weight": (hidden,)}
    tensors = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    for key, value in entries.items():
        writer.add_uint32(key, value)
    for name, tensor in tensors.items():
        if name != without:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_a_gguf_file_is_converted_once_and_holds_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAK_CACHE", str(tmp_path / "cache"))
    tensors = write_gguf(tmp_path / "tiny.gguf")

    folder = resolve_model(str(tmp_path / "tiny.gguf"))
    said = capfd.readouterr()
    stamp = (folder / "config.json").stat().st_mtime_ns
    again = resolve_model(str(tmp_path / "tiny.gguf"))

    decoder = load_decoder(folder, torch.float32)
    down = torch.from_numpy(tensors["blk.1.ffn_down.weight"])
    assert said == ("", "")
    assert again == folder
    assert (folder / "config.json").stat().st_mtime_ns == stamp
    assert torch.allclose(decoder.state_dict()["layers.1.down.weight"], down, atol=1e-2)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Path]:
    """Where a broken GGUF file shall lie; in the end nothing of it is in the cache, and nothing on the terminal."""
    monkeypatch.setenv("STREAK_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "broken.gguf"
    assert not list(tmp_path.glob("cache/*"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.03, 0.2, 0.9, 0.999])
def test_a_gguf_file_that_is_cut_off_is_one_line(broken: Path, share: float) -> None:
    write_gguf(broken)
    whole = broken.read_bytes()
    broken.write_bytes(whole[: 4 + int(share * (len(whole) - 4))])

    with pytest.raises(ValueError, match=rf"{broken}: broken GGUF file: .*(the file ends after|ends at byte) \d+"):
        resolve_model(str(broken))


# The version, both counts, the length of the first key, and the type of its value.
@pytest.mark.parametrize(("at", "what"), [(4, "version"), (8, "tensor"), (16, "entry"), (24, "entry"), (52, "type")])
def test_a_gguf_file_with_a_wrong_number_in_its_tables_is_one_line(broken: Path, at: int, what: str) -> None:
    write_gguf(broken)
    data = bytearray(broken.read_bytes())
    data[at : at + 4] = b"\xf0\xff\xff\x7f"
    broken.write_bytes(data)

    with pytest.raises(ValueError, match=rf"{broken}: broken GGUF file: .*{what}"):
        resolve_model(str(broken))


def test_an_endless_array_in_a_gguf_file_is_one_line(broken: Path) -> None:
    write_gguf(broken)
    data = broken.read_bytes()
    at = data.index(b"tokenizer.ggml.token_type") + len("tokenizer.ggml.token_type") + 8
    broken.write_bytes(data[:at] + (2**60).to_bytes(8, "little") + data[at + 8 :])

    with pytest.raises(ValueError, match=r"key 'tokenizer\.ggml\.token_type' needs \d+ bytes more"):
        resolve_model(str(broken))


def test_a_gguf_file_without_one_of_its_weights_is_one_line(broken: Path) -> None:
    write_gguf(broken, without="blk.1.ffn_up.weight")

    with pytest.raises(ValueError, match=rf"{broken}: .*weight 'model\.layers\.1\.mlp\.up_proj\.weight' is missing"):
        resolve_model(str(broken))


def test_a_gguf_file_with_more_layers_than_tensors_is_one_line(broken: Path) -> None:
    write_gguf(broken, {"odd.block_count": 10**9})

    with pytest.raises(ValueError, match=r"odd\.block_count = 1000000000, with 20 tensors in all"):
        resolve_model(str(broken))


def test_a_gguf_file_of_an_unknown_architecture_is_one_line(broken: Path) -> None:
    write_gguf(broken)
    broken.write_bytes(broken.read_bytes().replace(b"llama", b"shama"))

    with pytest.raises(ValueError, match=rf"{broken}: transformers cannot convert it: .*shama is not supported yet"):
        resolve_model(str(broken))


def test_a_file_that_is_no_gguf_file_is_one_line(broken: Path) -> None:
    broken.write_bytes(b"GGML" * 9)

    with pytest.raises(ValueError, match=rf"{broken}: not a GGUF file"):
        resolve_model(str(broken))


def test_a_gguf_file_that_was_replaced_is_converted_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAK_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "tiny.gguf")
    first = resolve_model(str(tmp_path / "tiny.gguf"))
    write_gguf(tmp_path / "tiny.gguf", {"general.file_type": 7})

    assert resolve_model(str(tmp_path / "tiny.gguf")) != first


def test_a_missing_gguf_file_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"model 'nowhere\.gguf': no such GGUF file"):
        resolve_model("nowhere.gguf")
