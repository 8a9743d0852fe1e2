r"""One spelling for each way of writing mathematics: what a LaTeX answer says, without how it looks.

Text in, text out; knows neither golds nor values. \dfrac12 becomes \frac{1}{2}, $10{,}000$ becomes 10000, 1\frac{4}{5}
becomes (1+\frac{4}{5}), 0.\overline{3} becomes a fraction, and sizes, spacing, fonts and currency signs go. What could
change a value stays: brackets, separators, words, units, which forms.py reads.
"""

import re
import unicodedata

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ", "0123456789-n")
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
SIGNS = {
    "−": "-", "–": "-", "‐": "-", "×": r"\cdot ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/", "∕": "/",
    "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ", "φ": r"\varphi ", "ω": r"\omega ",
    "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "∈": r"\in ", "∪": r"\cup ", "∩": r"\cap ", "∖": r"\setminus ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}",
    "±": r"\pm ", "∓": r"\mp ", "°": r"^\circ ", "′": "'", "’": "'", "…": r"\ldots ",
    "⟨": r"\langle ", "⟩": r"\rangle ",
    "€": "", "£": "", "¥": "", "\u200b": "", "\ufeff": "",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
}  # fmt: skip
# Commands with another spelling, and commands that only say how something looks.
SPELLINGS = {
    "leq": "le", "leqslant": "le", "leqq": "le", "geq": "ge", "geqslant": "ge", "geqq": "ge", "neq": "ne",
    "times": "cdot",
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "varnothing": "emptyset",
    "infin": "infty", "dots": "ldots", "cdots": "ldots", "dotsc": "ldots", "lbrace": "{", "rbrace": "}", "lvert": "|",
    "rvert": "|", "vert": "|", "mid": "|", "backslash": "setminus", "smallsetminus": "setminus",
    "simeq": "approx",
    "bigcup": "cup", "bigcap": "cap", "isin": "in", "land": "wedge", "lor": "vee", "iff": "Rightarrow",
    "mbox": "text", "textbf": "text", "textrm": "text", "textit": "text", "textsf": "text", "texttt": "text",
    "textnormal": "text", "mathrm": "text", "mathsf": "text", "mathtt": "text", "hbox": "text", "bf": "", "rm": "",
    "bar": "overline", "tg": "tan", "ctg": "cot", "arctg": "arctan", "cosec": "csc", "degree": "^\\circ ",
    "dot": "overline", "lg": "log", "textsuperscript": "^",
}  # fmt: skip
LOOKS = [
    "left",
    "right",
    "bigl",
    "bigr",
    "Bigl",
    "Bigr",
    "biggl",
    "biggr",
    "Biggl",
    "Biggr",
    "big",
    "Big",
    "bigg",
    "Bigg",
    "middle",
    "displaystyle",
    "textstyle",
    "limits",
    "nolimits",
    "scriptstyle",
    *("tiny", "scriptsize", "footnotesize", "small", "normalsize", "large", "Large", "LARGE", "huge", "Huge"),
    "mathstrut",
    "strut",
    "nonumber",
]
SPACES = ["quad", "qquad", "thinspace", "medspace", "thickspace", "enspace", "hfill"]
FONTS = r"\\(?:mathbf|boldsymbol|bm|mathit|mathnormal|bold|mathcal|ensuremath|boxed|fbox|underline)\s*(?={)"
DELIMITERS = {"lt": "<", "gt": ">", "lbrack": "[", "rbrack": "]"}
FUNCTIONS = [
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "log",
    "ln",
    "exp",
    "sqrt",
    "cis",
]
UNIT_LETTERS = "NJWVAKl"  # in \text{} behind a number; others may be names
ARGUMENTS = {"frac": 2, "binom": 2, "sqrt": 1, "overline": 1, "hat": 1, "vec": 1}

COMMAND = re.compile(r"\\([a-zA-Z]+)\*?")
# 10{,}000 and 10,\!000 and 10\,000: signs that group digits; a comma and a blank separate two numbers.
GROUPING = re.compile(r"(?<=\d)(?:\{,\}(?:\\!)?\s*|,\\!\s*|\\[,;:]\s?|\\ |[\u2009\u202f\u00a0])(?=\d{3}(?!\d))")
COMMA_GROUPS = re.compile(r"(?<![\d.,_^])\d{1,3}(?:,\d{3})+(?![\d,])")
BLANK_GROUPS = re.compile(r"-?\d{1,3}(?: \d{3})+(?:\.\d+)?")
REPEATING = re.compile(r"(?<!\d)(\d*)\.(\d*)\\overline\{(\d+)\}")
DOTTED = re.compile(r"\\dot\s*\{?(\d)\}?(\d*)\\dot\s*\{?(\d)\}?")
GOING_ON = re.compile(r"(?<!\d)(\d*\.\d{0,9}?)(?:([1-9])\2{2,}|(\d{2,9}?)\3+)\s*\\ldots")  # 0.1666..., 0.1212...
MIXED = re.compile(
    r"(?<![\d.}_^)a-zA-Z])(\d+)\s*\\frac\{(\d+)\}\{(\d+)\}(?![\d^!_])|(?<![\d./_^a-zA-Z])(\d+) +(\d+)/(\d+)(?![\d^!/])"
)
NTH = r"(?:\\text\s*\{\s*-?(?:st|nd|rd|th)\s*\}|(?:st|nd|rd|th)(?![a-zA-Z]))"
ORDINAL = re.compile(rf"(?<=\d)\s*\^?\s*(?:\{{\s*{NTH}\s*\}}|{NTH})")
TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|cis)(?![a-zA-Z])")
DEGREE = r"(?:\^\s*\{?\s*\\circ\s*\}?|\\circ\b)"
DEGREES = re.compile(rf"(?<!\d)(\d+(?:\.\d+)?)\s*{DEGREE}")
TEMPERATURE = re.compile(rf"{DEGREE}\s*(?:\\text\s*\{{\s*([CF])\s*\}}|([CF]))\s*$")
SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d+)(?!\w)")
CURRENCY = re.compile(r"\\?\$|\\(?:pounds|euro|textdollar)\b")
LONGEST = 20_000  # characters of an answer; more is no answer, and slow to read


def normalised(text: str) -> str:
    """The one spelling. Raises ValueError for a text of more than LONGEST characters."""
    if len(text) > LONGEST:
        raise ValueError(f"an answer of more than {LONGEST} characters")
    text = GROUPING.sub("", without_unicode(text))
    text = re.sub(r"(?<!\\)\\[()\[\]]", "", CURRENCY.sub("", text))
    text = re.sub(r"\\(?:hspace|vspace|phantom|hphantom|textcolor|color)\*?\{[^{}]*\}", " ", text)
    text = re.sub(FONTS, "", angle_brackets(text))
    text = COMMAND.sub(spelling, DOTTED.sub(r"\\overline{\1\2\3}", text))
    text = re.sub(r"(\\[a-zA-Z]+)(?=\d)", r"\1 ", text)  # \pm5: where a command ends is plain from here on
    text = re.sub(r"(?<!\\)(?:\\[,;:! >]|~)", " ", text)
    text = re.sub(r"\\mathbb\s*([A-Z])", r"\\mathbb{\1}", text)
    text = re.sub(r"\{\s*([^{}]+?)\s*\\choose\s*([^{}]+?)\s*\}", r"\\binom{\1}{\2}", text)
    text = plain_letters(plain_words(without_text(text)))
    text = ORDINAL.sub("", with_braces(text))
    if TRIGONOMETRY.search(text):  # elsewhere a degree is a unit
        text = DEGREES.sub(r"(\1\\cdot \\frac{\\pi}{180})", text)
    text = TEMPERATURE.sub(lambda found: rf"\text{{{'celsius' if 'C' in found.group() else 'fahrenheit'}}}", text)
    text = re.sub(rf"{DEGREE}|\\?%", " ", text)
    text = GOING_ON.sub(lambda found: rf"{found[1]}\overline{{{found[2] or found[3]}}}", text)
    text = REPEATING.sub(repeating, text)
    text = grouped_digits(text.strip().rstrip(".,;:\\ \n"))
    text = SCIENTIFIC.sub(r"(\1\\cdot 10^{\2})", text)
    text = MIXED.sub(mixed, text)
    return re.sub(r"\s+", " ", text).strip()


def without_unicode(text: str) -> str:
    """Signs as LaTeX, full-width letters as plain ones."""
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ]+", lambda found: f"^{{{found.group().translate(SUPERSCRIPTS)}}}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉]+", lambda found: f"_{{{found.group().translate(SUBSCRIPTS)}}}", text)
    text = re.sub("√\\s*(\\d+|[a-zA-Z])", r"\\sqrt{\1}", text).replace("√", r"\sqrt")
    text = re.sub(r"(?<=\d)[\u2009\u202f\u00a0](?=\d{3}(?!\d))", "", text)
    for sign, latex in SIGNS.items():
        text = text.replace(sign, latex)
    return unicodedata.normalize("NFKC", text)


def spelling(command: re.Match[str]) -> str:
    """One command in its usual spelling; nothing for one that only says how something looks."""
    name = command[1]
    if name in LOOKS:
        return ""
    if name in SPACES:
        return " "
    if name in DELIMITERS:
        return DELIMITERS[name]
    new = SPELLINGS.get(name, name)
    return new if new[:1] in ("", "|", "^") else f"\\{new}"


def angle_brackets(text: str) -> str:
    r"""\left<1,2\right> and <1,2> with \langle and \rangle."""
    text = re.sub(r"\\left\s*<", r"\\langle ", re.sub(r"\\right\s*>", r"\\rangle ", text))
    return re.sub(r"^\s*<([^<>=]*,[^<>=]*)>[\s.]*$", r"\\langle \1\\rangle ", text)


def without_text(text: str) -> str:
    r"""\text{7 pens} as 7 pens, and \text{A, B and C} word by word."""
    whole = re.fullmatch(r"\s*\\text\s*\{([^{}]*)\}[\s.]*", text)
    if whole is None:
        return text
    if re.search(r"\d", whole[1]):
        return whole[1]
    words = [word for word in re.split(r"\s*,\s*(?:(?:and|or)\s+)?|\s+(?:and|or)\s+", whole[1].strip()) if word]
    return ", ".join(rf"\text{{{word}}}" for word in words) if len(words) > 1 else text


def plain_words(text: str) -> str:
    """Words and signs of plain text as LaTeX: sqrt(2), 2*x, x**2, pi, infinity, <=, ^(1/2), 5 percent."""
    text = re.sub(r"\\text\s*\{\s*cis\s*\}", r"\\cis ", text)
    text = re.sub(r"(?<![\d}])(?<![\d}] )\\text\s*\{([a-zA-Z])\}", r"\1", text)  # \mathrm{e}
    text = re.sub(rf"\\text\s*\{{([^\W\d_{UNIT_LETTERS}])\}}", r"\1", text)
    text = re.sub(r"\\text\s*\{\s*\}", "", text)
    text = re.sub(
        r"\\text\s*\{\s*(?:percent|percentage|pct|degrees?)\s*\}|\b(?:percentage|percent|pct|degrees?)\b", "", text
    )
    text = text.replace("**", "^").replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ")
    text = text.replace("...", r"\ldots ").replace("~=", r"\approx ").replace("*", r"\cdot ").replace("+/-", r"\pm ")
    text = re.sub(r"(?<=[)\]])\s*U\s*(?=[(\[])", r"\\cup ", text)
    text = re.sub(rf"(?<![\\a-zA-Z])({'|'.join(FUNCTIONS)})(?=\s*[({{\d\[_]|\s+[a-z]\b)", r"\\\1", text)
    text = re.sub(r"(?<![\\a-zA-Z{])(?:infinity|inf)(?![a-zA-Z])", r"\\infty", text)
    text = re.sub(r"(?<![\\a-zA-Z])(pi)(?![a-zA-Z])", r"\\pi ", text)
    text = brackets_to_braces(text, r"\sqrt")
    return brackets_to_braces(text, "^")


def plain_letters(text: str) -> str:
    r"""\operatorname{name} as \name; outside of matrices a doubled backslash before a command as one."""
    text = re.sub(r"\\operatorname\s*\{\s*([a-zA-Z]+)\s*\}", r"\\\1 ", text)
    return text if r"\begin" in text else re.sub(r"\\\\(?=(?:frac|sqrt|pi|text|infty|cdot|pm)\b)", r"\\", text)


def brackets_to_braces(text: str, before: str) -> str:
    """The round bracket that follows `before` as a brace: sqrt(2), x^(1/2)."""
    start = 0
    while (start := text.find(before, start)) >= 0:
        start += len(before)
        opened = start + len(text[start:]) - len(text[start:].lstrip())
        if text[opened : opened + 1] == "(" and (closed := closing(text, opened)) is not None:
            text = f"{text[:start]}{{{text[opened + 1 : closed]}}}{text[closed + 1 :]}"
    return text


def closing(text: str, opened: int) -> int | None:
    """Where the bracket at `opened` closes, or None; kinds of brackets are not told apart."""
    depth = 0
    for place in range(opened, len(text)):
        if text[place] in "([{":
            depth += 1
        elif text[place] in ")]}":
            depth -= 1
            if depth == 0:
                return place
    return None


def with_braces(text: str) -> str:
    r"""Arguments in braces: \frac12 and \frac 1 2 and \frac1{2} as \frac{1}{2}."""
    parts: list[str] = []
    end = 0
    for command in re.finditer(rf"\\({'|'.join(ARGUMENTS)})(?![a-zA-Z])", text):
        if command.start() < end:
            continue
        parts.append(text[end : command.start()])
        written, end = one_command(text, command)
        parts.append(written)
    return "".join(parts) + text[end:]


def one_command(text: str, command: re.Match[str]) -> tuple[str, int]:
    """A command with its arguments in braces, and where it ends."""
    written, place = command.group(), command.end()
    root = re.compile(r"\s*\[[^\[\]]*\]").match(text, place) if command[1] == "sqrt" else None
    if root:
        written, place = written + root.group().strip(), root.end()
    for _ in range(ARGUMENTS[command[1]]):
        found = re.compile(r"\s*(\{|\\[a-zA-Z]+|[^\s\\{}])").match(text, place)
        if found is None:
            return written, place
        if found[1] != "{":
            if found[1][1:] in ARGUMENTS:
                inner = re.compile(r"\\([a-zA-Z]+)").match(text, found.start(1))
                argument, place = one_command(text, inner) if inner else (found[1], found.end())
            else:
                argument, place = found[1], found.end()
            written += f"{{{argument}}}"
            continue
        closed = closing(text, found.start(1))
        if closed is None:
            return written + text[place:], len(text)
        written += f"{{{with_braces(text[found.end() : closed])}}}"
        place = closed + 1
    return written, place


def grouped_digits(text: str) -> str:
    """1,234,567 and 1 234 567 as one number; within brackets and lists a comma separates."""
    if BLANK_GROUPS.fullmatch(text):
        return text.replace(" ", "")
    if re.search(r"[(\[{,;]\s*-?\d{1,3},\d{3}|,\s|;", text) and re.search(r"^\W*[(\[{]", text):
        return text
    return COMMA_GROUPS.sub(lambda found: found.group().replace(",", ""), text)


def repeating(found: re.Match[str]) -> str:
    r"""0.1\overline{6} as a fraction."""
    before, once, again = found[1] or "0", found[2], found[3]
    below = (10 ** len(again) - 1) * 10 ** len(once)
    return rf"\frac{{{int(before + once + again) - int(before + once)}}}{{{below}}}"


def mixed(found: re.Match[str]) -> str:
    r"""1\frac{4}{5} as a sum in brackets; an improper fraction behind a number is left alone."""
    number, above, below = (found[1], found[2], found[3]) if found[1] else (found[4], found[5], found[6])
    if int(above) >= int(below):
        return found.group()
    return rf"({number}+\frac{{{above}}}{{{below}}})"
