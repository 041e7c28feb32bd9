"""Just enough of C to check rules: text without comments and literals, includes, calls, functions."""

import re


def blank(text, keep_strings):
    """`text` with comments, and unless keep_strings literals, replaced by spaces; same lines."""
    token = re.compile(
        r"//(?:[^\n\\]|\\.|\\\n)*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.|\\\n)*\"|'(?:[^'\\\n]|\\.)*'", re.S)

    def swap(match):
        found = match.group(0)
        if found[0] in "\"'":
            if keep_strings:
                return found
            return found[0] + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1]
        return re.sub(r"[^\n]", " ", found)

    return token.sub(swap, text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def includes(text):
    """(line, kind, header) of every include; kind is '<' or '"'."""
    code = blank(text, True)
    for match in re.finditer(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", code, re.M):
        yield line_of(code, match.start()), match.group(1), match.group(2)


def calls(text, names):
    """(line, name) of every call of one of `names` (regular expressions), members excluded."""
    code = blank(text, False)
    pattern = re.compile(r"(?<![\w.])(?<!->)(" + "|".join(names) + r")[ \t]*\(")
    for match in pattern.finditer(code):
        yield line_of(code, match.start()), match.group(1)


def without_directives(code):
    """Directives blanked, and of #if ... #else ... #endif only the first branch kept, so that braces
    opened once per branch still balance."""
    lines, out, i = code.split("\n"), [], 0
    skipping = []  # one entry per open #if: is the branch at hand left out?
    while i < len(lines):
        match = re.match(r"[ \t]*#[ \t]*(\w+)", lines[i])
        if match is None:
            out.append("" if any(skipping) else lines[i])
            i += 1
            continue
        word = match.group(1)
        if word in ("if", "ifdef", "ifndef"):
            skipping.append(False)
        elif word in ("else", "elif") and skipping:
            skipping[-1] = True
        elif word == "endif" and skipping:
            skipping.pop()
        while lines[i].rstrip().endswith("\\") and i + 1 < len(lines):
            out.append("")
            i += 1
        out.append("")
        i += 1
    return "\n".join(out)


def functions(text):
    """(first line, name, lines) of every function body, its head included."""
    code = without_directives(blank(text, False))
    depth, parens, head, start = 0, 0, 0, None
    found = []
    for at, char in enumerate(code):
        if char in "([":
            parens += 1
        elif char in ")]":
            parens -= 1
        elif char == "{":
            if depth == 0 and parens == 0:
                before = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", code[head:at], flags=re.S).strip()
                name = re.search(r"([A-Za-z_]\w*)\s*\(", before)
                is_body = name and "=" not in re.sub(r"\(.*\)", "", before, flags=re.S) and \
                    not before.endswith("=") and re.search(r"\)[\s\w]*$", before)
                if is_body:
                    start = (head + len(code[head:at]) - len(code[head:at].lstrip()), name.group(1))
                elif re.match(r"extern\s*\"", before):
                    head = at + 1
                    continue
            depth += 1
        elif char == "}":
            if depth == 0:  # the end of extern "C"
                head = at + 1
                continue
            depth -= 1
            if depth == 0:
                if start is not None:
                    first, last = line_of(code, start[0]), line_of(code, at)
                    found.append((first, function_name(code[start[0]:at], start[1]), last - first + 1))
                    start = None
                head = at + 1
        elif char == ";" and depth == 0 and parens == 0:
            head = at + 1
    return found


def function_name(body, fallback):
    """START_TEST(name) and friends are known by their argument."""
    match = re.match(r"(?:START_TEST|START_LOOP_TEST)\s*\(\s*(\w+)", body)
    return match.group(1) if match else fallback
