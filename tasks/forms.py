r"""What kind of thing an answer is: a number or expression, a word, a list, a set, a tuple, an interval, a relation ...

Reads normalised text (notation.py) by its brackets, separators and relation signs, down to the expressions in it, which
stay text. Nothing is computed here. A unit behind an expression is set apart from it: 15\text{ cm}^2 is 15.
"""

import re
from collections.abc import Iterator, Sequence

from tasks.kinds import Based, Choice, Expression, Form, Grid, Joined, Named, Relation, Row, Several, Word
from tasks.notation import closing

MARK = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
OPEN, CLOSE = {"(", "[", "{", r"\{", r"\langle"}, {")", "]", "}", r"\}", r"\rangle"}
CONNECTIVE = re.compile(
    r"\s*,?\s*(?:\\text\s*\{\s*,?\s*(and|or)\s*,?\s*\}|(?<![a-zA-Z\\])(and|or)(?![a-zA-Z])|\\(vee))\s*,?\s*"
)
RELATIONS = {"=": "=", "<": "<", ">": ">", r"\le": "<=", r"\ge": ">=", r"\ne": "!=", r"\in": "in", r"\approx": "~"}
RELATIONS[r"\equiv"] = "="
MATRIX = re.compile(
    r"[(\[]?\s*\\begin\{([pbvB]?matrix|smallmatrix|array)\}(?:\s*\{[^{}]*\})?(.*?)\\end\{\1\}\s*[)\]]?", re.DOTALL
)
SYSTEM = re.compile(r"\\?\{?\s*\\begin\{(cases|aligned|array)\}(?:\s*\{[lcr]*\})?(.*)\\end\{\1\}\s*\.?", re.DOTALL)
LABEL = re.compile(
    r"(?:\\text\s*\{\s*\(?([A-H])\)?[.:]?\s*\}|\(([A-H])\)(?=\s)|([A-H])\.\s)\s*(?=[-\w\\$(])(.+)", re.DOTALL
)
IN_BASE = re.compile(r"\s*(?:\\text\s*\{)?\s*\(?\s*(?:in )?base[ -](\d{1,2}|[a-z]+)\s*\)?\s*\}?$")
BASED = re.compile(
    r"\(?(?:\\text\s*\{)?(?=[A-F]*\d)([0-9A-F]++)\}?\)?\s*_\s*(?:(\d)|\{\s*(\d{1,2})\s*\}|\{?\s*\\text\{\s*([a-z]+)\s*\}\s*\}?)"
)
BASES = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "twelve": 12,
}
POWER = r"(\^\s*\{?\s*\d\s*\}?)?\s*$"
UNIT = re.compile(rf"(?<=[\d}}\)a-z])\s*\\text\s*\{{\s*([^{{}}]*?)\s*\}}\s*{POWER}")
QUANTITY = re.compile(r"\s*((?<!\d)\d++(?:\.\d++)?\s*(?:\\text\s*\{\s*[a-zA-Z]+\.?\s*,?\s*\}|(?<=\s)[a-zA-Z]{2,}))")
"""A number with its unit, of which there may be several: 2 hours 30 minutes."""
MODULUS = re.compile(r"\s*(?:\\pmod|\(\s*\\b?mod)\s*\{?\s*(\w+)\s*\}?\s*\)?$")
SHORT_UNITS = "m/s sq mm cm km ft in yd mi mph kg mg lb lbs oz hr hrs min sec ml"
SHORT = "|".join(SHORT_UNITS.split())
UNIT_WORD = re.compile(
    rf"(?<=[\d}}\)])(?:\s+|\s*(?=(?:{SHORT})\b))((?:{SHORT}|[a-zA-Z]{{3,}})(?:(?:[ .]+|/)[a-zA-Z]+)*)"
    rf"\.?\s*{POWER}"
)
UNIT_LETTER = re.compile(r"(?<=[\d}])\s*([smghL])$")
CONDITION = re.compile(r"[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?[:|](.+)", re.DOTALL)
APPLIED = re.compile(r"(?<=[a-zA-Z])(?:\^\s*(?:\{\s*-\s*1\s*\}|-1))?\s*\([^()]*\)")
"""What a function is applied to, with the sign of its inverse."""
COMBINED = re.compile(r"\(\s*[a-zA-Z](?:[-+/\s]|\\circ|\\cdot)+[a-zA-Z]\s*\)\s*\([^()]*\)")
"""A sum or another combination of two functions, applied."""
LENGTH = re.compile(r"\|\s*([A-Z]{2})\s*\|")
NAME = re.compile(r"(?:\\?[a-zA-Z]++|[\s'/:,(){}])+")
NOT_NAMES = re.compile(
    r"\\(?:pi|infty|sqrt|cdot|cup|cap|sum|int|prod|binom|log|ln|sin|cos|tan|exp|pm|mp|emptyset)\b|^[ie]$"
)
TIME = re.compile(r"0?(\d{1,2})(?::(\d\d)\s*|\s+|(?=[ap]\.))([ap])\.?\s*m\.?", re.IGNORECASE)
ALL_REALS = {"allrealnumbers", "allreals", "realnumbers"}


def form_of(text: str) -> Form:
    """The form of a normalised text."""
    text = re.sub(r"^(?:=|\\approx\b)\s*", "", without_group(text.strip()))
    if text == r"\emptyset":
        return Several("set", ())
    if (word := word_in(text)) is not None:
        return Expression(r"\mathbb{R}") if word in ALL_REALS else Word(word)
    for reader in (
        system,
        labelled,
        quantities,
        connected,
        matrix,
        related,
        set_operation,
        signed_both_ways,
        bracketed,
        ratio,
    ):
        if (form := reader(text)) is not None:
            return form
    return expression(text)


def marks(text: str) -> Iterator[tuple[int, str, int]]:
    """Place, sign and depth of each command or character; the depth counts brackets of every kind and environments."""
    depth = 0
    for found in MARK.finditer(text):
        sign = found.group()
        if sign in CLOSE or sign == r"\end":
            depth -= 1
        yield found.start(), sign, depth
        if sign in OPEN or sign == r"\begin":
            depth += 1


def split_at(text: str, signs: set[str]) -> tuple[list[str], list[str]]:
    """The parts between those signs that stand outside of all brackets, and the signs."""
    parts, found, start = [], [], 0
    for place, sign, depth in marks(text):
        if depth == 0 and sign in signs:
            parts.append(text[start:place].strip())
            found.append(sign)
            start = place + len(sign)
    return [*parts, text[start:].strip()], found


def without_group(text: str) -> str:
    """The text without braces around all of it, which only group."""
    while text.startswith("{") and closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def plain(text: str) -> str:
    r"""A text without \text{}, brackets around all of it, blanks and full stops; lower case beyond a single letter."""
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).strip()
    text = re.sub(r"^\((.*)\)$", r"\1", text).replace("\\", "")
    text = re.sub(r"(?i)^(?:an?|the) +(?=\w{3})|^(?:option|choice) *(?=\(?\w\)?$)", "", text)
    text = re.sub(r"^\((\w)\)$", r"\1", text)
    text = re.sub(r"[\s.{}]+", "", text)
    return text if len(text) == 1 else text.lower()


def word_in(text: str) -> str | None:
    """The words that an answer consists of; None for mathematics."""
    if text == r"\ldots":
        return "..."
    inside = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).strip()
    if time := TIME.fullmatch(inside):
        return f"{time[1]}:{time[2] or '00'}{time[3].lower()}m"
    if not re.fullmatch(r"\(?[a-zA-Z][a-zA-Z\s.'\-]*\)?(?:\([A-Z]\))?", inside):
        return None
    if re.search(r"(?<![a-zA-Z])(?:and|or)(?![a-zA-Z])", inside):
        return None
    # Four letters are hardly a product, and three capitals are points or an order.
    return plain(text) if r"\text" in text or re.search(r"[a-zA-Z]{4}|[A-Z]{3}", inside) else None


def system(text: str) -> Form | None:
    """Equations below one another, as a list."""
    found = SYSTEM.fullmatch(text)
    if found is None or (found[1] != "aligned" and "&" in found[2]):
        return None
    lines = [line.replace("&", "").strip(" ,") for line in re.split(r"\\\\(?:\[[^\]]*\])?", found[2]) if line.strip()]
    return form_of(", ".join(lines)) if all("=" in line for line in lines) else None


def labelled(text: str) -> Form | None:
    """An option's letter with what it says."""
    found = LABEL.fullmatch(text)
    return Choice(found[1] or found[2] or found[3], form_of(found[4])) if found else None


def quantities(text: str) -> Form | None:
    """Several numbers with units, of which each counts."""
    parts = QUANTITY.findall(text)
    if len(parts) < 2 or QUANTITY.sub("", text).strip():
        return None
    return Several("list", tuple(map(expression, parts)))


def connected(text: str) -> Form | None:
    """Parts between 'and', 'or', semicolons and commas; a comma separates within semicolons."""
    if not outside(text, {",", ";"}) and not CONNECTIVE.search(text):
        return None
    words = [found[1] or found[2] or "or" for found in CONNECTIVE.finditer(text)]
    text = CONNECTIVE.sub(", ", text)
    for sign in (";", ","):
        parts = [part for part in split_at(text, {sign})[0] if part]
        if len(parts) > 1:
            forms = tuple(map(form_of, parts))
            conditions = [isinstance(form, Relation) and form.signs != ("=",) for form in forms]
            if "or" in words and any(conditions):
                return Joined((r"\cup",) * (len(forms) - 1), forms)
            if "and" in words and all(conditions):
                return Joined((r"\cap",) * (len(forms) - 1), forms)
            return Several("list", flat(forms) if sign == "," else forms)
    return None


def flat(forms: Sequence[Form]) -> tuple[Form, ...]:
    """The forms, those of a plus-minus in the place of both signs."""
    return tuple(
        part
        for form in forms
        for part in (form.parts if isinstance(form, Several) and form.kind == "list" else (form,))
    )


def outside(text: str, signs: set[str]) -> bool:
    """Whether one of the signs stands outside of all brackets."""
    return any(depth == 0 and sign in signs for _, sign, depth in marks(text))


def matrix(text: str) -> Form | None:
    """A matrix that stands alone."""
    found = MATRIX.fullmatch(text)
    if found is None or found[1] == "vmatrix" or r"\begin" in found[2]:
        return None
    lines = [line for line in re.split(r"\\\\(?:\[[^\]]*\])?|\\cr", found[2].replace(r"\hline", "")) if line.strip()]
    return Grid(tuple(tuple(form_of(cell) for cell in line.split("&")) for line in lines))


def related(text: str) -> Form | None:
    """An assignment, an equation or inequalities."""
    sides, signs = split_at(text, set(RELATIONS))
    if not signs or not all(sides):
        return None
    while signs[-1] == r"\approx" and (len(signs) > 1 or not is_name(sides[0])):
        sides, signs = sides[:-1], signs[:-1]
        if not signs:
            return form_of(sides[0])
    kinds = [RELATIONS[sign] for sign in signs]
    if set(kinds) <= {"=", "~"} or kinds == ["in"]:
        for name, value in ((sides[0], sides[-1]), (sides[-1], sides[0])):
            if is_name(name) and value:
                return Named(re.sub(r"[\s{}]", "", name), form_of(value), (name, value))
        if len(sides) > 2 or not re.search("[a-zA-Z]", re.sub(r"\\[a-z]+", "", text)):
            return form_of(sides[-1])  # 1/2 + 1/2 = 1: what the chain comes to
    return Relation(tuple(sides), tuple(kinds))


def is_name(text: str) -> bool:
    """Whether a side of an equation is a mere name: x, x_1, f(x), f^{-1}(g(2)), (f+g)(2), (p,q), AB/CD, |AB|, area."""
    bare = re.sub(r"_\s*(?:\{[^{}]*\}|\w)", "", text)
    while (inner := APPLIED.sub("", bare)) != bare:  # from the innermost brackets outwards
        bare = inner
    bare = LENGTH.sub(r"\1", COMBINED.sub("f", bare))
    bare = re.sub(r"\\(?:text|frac|overline|angle|triangle|mathbb)\b", " ", bare)
    return NAME.fullmatch(bare) is not None and NOT_NAMES.search(bare.strip()) is None


def set_operation(text: str) -> Form | None:
    """A union, intersection or difference."""
    parts, signs = split_at(text, {r"\cup", r"\cap", r"\setminus"})
    return Joined(tuple(signs), tuple(map(form_of, parts))) if signs and all(parts) else None


def signed_both_ways(text: str) -> Form | None:
    r"""Both values of a \pm (and \mp the other way round) outside of brackets with several parts."""
    if not re.search(r"\\(?:pm|mp)\b", text) or bracketed(text) is not None:
        return None
    both = [re.sub(r"\\pm\b", plus, re.sub(r"\\mp\b", minus, text)) for plus, minus in (("+", "-"), ("-", "+"))]
    return Several("list", tuple(form_of(re.sub(r"^\+", "", each.strip())) for each in both))


def bracketed(text: str) -> Form | None:
    """A set, a point or an interval: one pair of brackets around parts."""
    found = [(place, sign, depth) for place, sign, depth in marks(text)]
    if len(found) < 2 or found[0][1] not in OPEN or found[-1][1] not in CLOSE:
        return None
    if any(depth == 0 for _, _, depth in found[1:-1]):
        return None
    left, right = found[0][1], found[-1][1]
    inside = text[len(left) : found[-1][0]].strip()
    if (left, right) == (r"\{", r"\}"):
        if condition := CONDITION.fullmatch(inside):
            return form_of(condition[1])
        inner = form_of(inside) if inside else None
        several = isinstance(inner, Several) and inner.kind == "list"
        return Several("set", inner.parts if several and isinstance(inner, Several) else (inner,) if inner else ())
    parts = [part for part in split_at(inside, {","})[0] if part]
    if len(parts) < 2:
        parts = [part for part in split_at(inside, {";"})[0] if part]
    if len(parts) < 2 and left != r"\langle" and not (left == "[" and right == "]" and parts):
        return None
    return Row(left, right, tuple(map(form_of, parts)))


def ratio(text: str) -> Form | None:
    """Parts between colons."""
    parts, signs = split_at(text, {":"})
    return Several("ratio", tuple(map(form_of, parts))) if signs and all(parts) else None


def expression(text: str) -> Form:
    """A number in a base, or an expression with its unit set apart."""
    if based := BASED.fullmatch(IN_BASE.sub(in_base, text)):
        base = int(based[2] or based[3] or BASES.get(based[4] or "", 0))
        if base >= 2:
            return Based(based[1], base)
    if modulus := MODULUS.search(text):
        return Expression(text, text[: modulus.start()].strip(), f"mod {modulus[1]}")
    for pattern in (UNIT, UNIT_WORD):
        if (unit := pattern.search(text)) and text[: unit.start()].strip():
            return Expression(
                text, text[: unit.start()].strip(), unit[1].strip() + re.sub(r"[\s{}]", "", unit[2] or "")
            )
    if letter := UNIT_LETTER.search(text):
        return Expression(text, text[: letter.start()].strip(), letter[1])
    return Expression(text)


def in_base(found: re.Match[str]) -> str:
    """A base that is said in words as a subscript."""
    return f"_{{{found[1]}}}" if found[1].isdigit() else rf"_{{\text{{{found[1]}}}}}"
