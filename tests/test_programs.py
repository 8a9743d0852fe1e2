"""Which program a reply means, told by running it: what a model wraps around its code, and what it leaves out."""

import ast
from typing import Any

import pytest

from tasks.programs import fenced_blocks, program_parts

PROMPT = '''from typing import List

def twice(x: int) -> int:
    return 2 * x

def target(xs: List[int]) -> int:
    """ Sum of the doubled numbers.
    >>> target([1, 2])
    6
    """
'''
WHOLE = "def target(xs: List[int]) -> int:\n    return sum(twice(x) for x in xs)\n"
BODY = "    return sum(twice(x) for x in xs)\n"
WRONG = "def target(xs):\n    return -1\n"


def answer(reply: str) -> Any:
    """What the reply's program says to [1, 2]; the error's type if it does not run; None for no program."""
    parts = program_parts(PROMPT, "target", reply)
    if parts is None:
        return None
    scope: dict[str, Any] = {}
    try:
        for part in parts:
            exec(compile(part, "<reply>", "exec"), scope)  # noqa: S102 - programs of this test alone
        return scope["target"]([1, 2])
    except (ArithmeticError, NameError, SyntaxError, TypeError, ValueError) as error:
        return type(error)


def block(code: str, label: str = "python", fence: str = "```") -> str:
    return f"{fence}{label}\n{code}{fence}\n"


RIGHT = {
    "a bare body": BODY,
    "a body and a helper behind it": BODY.replace("twice", "thrice") + "\ndef thrice(x):\n    return 2 * x\n",
    "a body and prose": BODY + "\nThis adds up the doubled numbers.\n",
    "a body and the start of another function": BODY + "\n\ndef main(:\n    print(target(",
    "a body and the end of a chat": BODY + "<|im_end|>\n<|im_start|>user",
    "a body whose fence was opened in the prompt": BODY + "```\n\nThis is `target`.\n",
    "a whole function": WHOLE,
    "a whole function and its use": WHOLE + "\nprint(target([1]))\n",
    "prose around a whole function": f"Here is the function:\n\n{WHOLE}\nIt works as you can see.\n",
    "prose around and between": f"First some code.\nimport math\nNow the function:\n{WHOLE}That is it, I hope.\n",
    "prose before a body": f"The body is\n\n{BODY}",
    "a block": block(WHOLE),
    "a block in prose": f"Sure!\n\n{block(WHOLE)}\nAnything else?",
    "a block without a label": block(WHOLE, ""),
    "a capital label": block(WHOLE, "Python"),
    "a short label": block(WHOLE, "py"),
    "a label with settings": block(WHOLE, 'python title="a.py"'),
    "tildes": block(WHOLE, fence="~~~"),
    "four backticks": block(WHOLE, fence="````"),
    "a block that is not closed": "```python\n" + WHOLE,
    "line ends of Windows": block(WHOLE).replace("\n", "\r\n"),
    "an indented block": "1. Code:\n\n" + "".join(f"   {line}\n" for line in block(WHOLE).splitlines()),
    "a fence behind prose": "The code: " + block(WHOLE),
    "a body in a block": block(BODY),
    "a body in a block, its indentation lost": block("return sum(twice(x) for x in xs)\n"),
    "a body in a block, its first indentation lost": block(
        "total = 0\n    for x in xs:\n        total += twice(x)\n    return total\n"
    ),
    "a whole function, indented": block("".join(f"    {line}\n" for line in WHOLE.splitlines())),
    "tabs": block("def target(xs):\n\treturn sum(twice(x) for x in xs)\n"),
    "a shell block first": block("pip install numpy\n", "bash") + block(WHOLE),
    "tests last": block(WHOLE) + block("assert target([1, 2]) == 0\n"),
    "output last": block(WHOLE) + block("6\n", ""),
    "another language last": block(WHOLE) + block("function target(xs) { return 0 }\n", "javascript"),
    "a corrected block": block(WRONG) + "Wait, that is wrong.\n" + block(WHOLE),
    "a block cut off behind a whole one": block(WHOLE) + "```python\ndef target(xs):\n    return (",
    "the head repeated last": block(WHOLE) + block('def target(xs):\n    """Sum."""\n'),
    "a helper in a block before": block("def half(x):\n    return 4 * x // 2\n")
    + block(WHOLE.replace("twice", "half")),
    "a helper in a block behind": block(WHOLE.replace("twice", "half"))
    + block("def half(x):\n    return FOUR * x // 2\nFOUR = 4\n"),
    "an import in another block": block("import math\n")
    + block("def target(xs):\n    return math.floor(sum(xs) * 2)\n"),
    "two definitions, the later right": block(WRONG + "\n" + WHOLE),
    "a lambda": block("target = lambda xs: 2 * sum(xs)\n"),
    "another name given to it": block("def solve(xs):\n    return 2 * sum(xs)\n\ntarget = solve\n"),
    "a fence in its docstring": block('def target(xs):\n    """\n    ```\n    target([1])\n    ```\n    """\n' + BODY),
    "behind the thinking": f"<think>\n{block(WRONG)}</think>\n{block(WHOLE)}",
    "a body behind the thinking": f"<think>\ndef target(xs): return 0\n</think>\n\n{BODY}",
    "behind thinking that the prompt began": f"{block(WRONG)}</think>{block(WHOLE)}",
    "a main guard": block(WHOLE + "\nif __name__ == '__main__':\n    print(target([int(input())]))\n"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_program_is_found_in(name: str) -> None:
    assert answer(RIGHT[name]) == 6


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("", None),
        ("\n \n", None),
        ("I'm sorry, but I can't help with that request.", None),
        ("<think>\n" + block(WHOLE) + "but wait", None),
        (block(WHOLE) + "</think>\n", None),
        ("<think>hm</think><think>" + WHOLE, None),
        ("return sum(xs) * 2", SyntaxError),
        ("def target(xs)\n    return 6\n", SyntaxError),
        ("```python\ndef target(xs):\n    return (6", SyntaxError),
        (block(WHOLE + "\n" + WRONG), -1),
        (block("def other(xs):\n    return 6\n"), None),
        (block("    return 7\n") + block("x = 1\n", "json"), 7),
        ("def helper(x:\n    return x\n\n" + WHOLE, SyntaxError),
        ("    return 0\n\nif False:\n  \\\n", 0),
        ('    return 0\n"""\n', 0),
    ],
)
def test_what_else_a_reply_may_be(reply: str, said: object) -> None:
    assert answer(reply) == said


def test_a_null_byte_is_no_program_even_in_a_comment() -> None:
    assert answer(BODY + "\n# \0\n") in {SyntaxError, ValueError}  # the type depends on Python's version


def test_what_the_model_wrote_comes_last() -> None:
    parts = program_parts(PROMPT, "target", block("import re\n") + block("x = re.X\n" + WHOLE))

    assert parts == [PROMPT + "\n    pass\n", "import re", "x = re.X\n" + WHOLE]


def test_helpers_of_the_prompt_stay() -> None:
    parts = program_parts(PROMPT, "target", block("def twice(x):\n    return 0\n") + block(WHOLE))

    assert parts is not None
    assert [ast.unparse(ast.parse(part)).count("def twice") for part in parts] == [1, 0]


def test_blocks_are_read_as_markdown_does() -> None:
    text = "```python\na\n```\n~~~\nb\n```\n~~~\n````\nc\n```\n````\n`d`\n```ruby\ne\n"

    assert [(each.text, each.python) for each in fenced_blocks(text)] == [
        ("a\n", True),
        ("b\n```\n", True),
        ("c\n```\n", True),
        ("e\n\n", False),
    ]
