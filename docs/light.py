"""What Sphinx wrote, made light: only those icons, rules and scripts that pages use, in the order in which a reader needs them.

The theme brings all of Font Awesome (1.5 MB) and loads the search index (1 MB) on every page. Here an icon is a few
hundred bytes in `_static/icons.css`, a letter of a font, and the index is loaded by the search page alone.

Nine style sheets, of which three quarters of the rules are for what no page has, become one, `_static/pages.css`. Demos
move as soon as the page is read; what the theme's scripts do (menus, tooltips, buttons to copy) follows when the page
stands (access.js). Which of light and dark it is, is settled before anything is drawn: settled later, it has every
element styled and laid out a second time.
"""

import base64
import hashlib
import html
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path

import tinycss2  # comes with nbconvert

THEME = re.compile(r'<(?:script|link)[^>]*(?:src|href)="[^"]*fontawesome\.js[^"]*"[^>]*>(?:</script>)?\s*')
SEARCH = re.compile(r'<script[^>]*src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"[^>]*></script>\s*')
FONT = re.compile(r"@font-face\{[^}]*Font Awesome[^}]*\}")
RULES = re.compile(r'(?:\.fa-[\w-]+,?)+\{--fa:"[^"]*"\}')
ICON = re.compile(r"\bfa-(?!solid\b|brands\b|regular\b|lg\b|fw\b|sm\b)[a-z][a-z-]*")
SHAPE = r'(?:"({0})"|(?<=[,{{])({0})):\[(\d+),(\d+),\[[^\]]*\],"[0-9a-f]+","(M[^"]+)"'
OLD_NAMES = {"pencil-alt": "pencil", "home": "house", "external-link": "arrow-up-right-from-square"}
FROM = "icons.css"
EM, FIRST_LETTER = 512, 0xE000
SHEET = "pages.css"  # all of the above and the theme's, as far as pages use it


def icons(names: set[str], library: str) -> str:
    """A style sheet that draws the icons called `names` with shapes from Font Awesome's script, as letters of a font.

    As pictures each would be a document of its own to the browser: an emulated phone takes 10 to 25 ms to open one."""
    drawn_as = {name: OLD_NAMES.get(name.removeprefix("fa-"), name.removeprefix("fa-")) for name in sorted(names)}
    pattern = SHAPE.format("|".join(map(re.escape, sorted({*drawn_as.values()}, key=len, reverse=True))))
    found = {quoted or bare: tuple(shape) for quoted, bare, *shape in (re.findall(pattern, library) if names else ())}  # solid shapes stand behind those of other styles
    shapes = {name: found[shape] for name, shape in drawn_as.items() if shape in found}
    lines = ["/* Icons of Font Awesome Free (fontawesome.com), CC BY 4.0; only those that pages use. */",
             f'@font-face {{ font-family: "Icons"; font-weight: 100 900; font-display: block; src: url("data:font/woff;base64,{base64.b64encode(font(shapes)).decode()}") format("woff"); }}',
             ':is(.fa-solid, .fa-brands, .fa-regular, .fab, .fas) { --fa-family: "Icons"; display: inline-block; width: 1.25em; height: 1em; line-height: 1; text-align: center; vertical-align: -0.125em; overflow: hidden; }',
             ".fa-lg { font-size: 1.25em; vertical-align: -0.075em; }",
             *(f'.{name} {{ --fa: "\\{FIRST_LETTER + k:x}"; }}' for k, name in enumerate(shapes))]
    return "\n".join(lines) + "\n"


def font(shapes: dict[str, tuple[str, str, str]]) -> bytes:
    "A WOFF font of icons, name -> (width, height, path): letters of the private area, a quarter wider than high."
    from fontTools.fontBuilder import FontBuilder  # comes with matplotlib
    from fontTools.pens.t2CharStringPen import T2CharStringPen
    from fontTools.pens.transformPen import TransformPen
    from fontTools.svgLib.path import parse_path

    letters = {name: FIRST_LETTER + k for k, name in enumerate(shapes)}
    drawn = {".notdef": T2CharStringPen(EM, {}).getCharString()}
    for name, (width, height, path) in shapes.items():
        size = min(1.0, 1.25 * EM / float(width))
        pen = T2CharStringPen(1.25 * EM, {})
        parse_path(path, TransformPen(pen, (size, 0, 0, -size, (1.25 * EM - size * float(width)) / 2, size * float(height) / 2 + 0.375 * EM)))
        drawn[name] = pen.getCharString()
    made = FontBuilder(EM, isTTF=False)
    made.setupGlyphOrder(list(drawn))
    made.setupCharacterMap({code: name for name, code in letters.items()})
    made.setupCFF("Icons", {}, drawn, {})
    made.setupHorizontalMetrics({name: (EM * 5 // 4, 0) for name in drawn})
    made.setupHorizontalHeader(ascent=EM * 7 // 8, descent=-EM // 8)
    made.setupNameTable({"familyName": "Icons", "styleName": "Regular"})
    made.setupOS2(sTypoAscender=EM * 7 // 8, sTypoDescender=-EM // 8, usWinAscent=EM * 7 // 8, usWinDescent=EM // 8)
    made.setupPost()
    made.font.flavor, made.font.recalcTimestamp = "woff", False
    made.font["head"].created = made.font["head"].modified = 0  # the same font for the same icons
    made.font.save(packed := io.BytesIO())
    return packed.getvalue()


CODE = re.compile(r'((?:<div class="[^"]*">)?<div class="highlight"><pre>(?:<span></span>)?)(.*?)(\n?</pre>)', re.S)
COLOUR = re.compile(r'(html\[data-theme="\w+"\]) \.highlight(?: \.(\w+))? \{([^}]*)\}')


def plain_tokens(css: str) -> re.Pattern:
    "What finds the tokens of code that have the colour of all code: most of them, names and brackets, need no element of their own."
    ground, told = {}, {}
    for theme, token, rule in COLOUR.findall(css):
        colour = re.search(r"(?<![\w-])color: *(#\w+)", rule)
        if token: told.setdefault(token, []).append(rule.strip().rstrip(";").lower() == f"color: {ground.get(theme)}")
        elif colour: ground[theme] = colour[1].lower()
    names = "|".join(sorted(token for token, same in told.items() if all(same))) or "$^"
    return re.compile(rf'<span class="(?:{names})">([^<]*)</span>')


COLUMNS = re.compile(r"\S {2,}\S")  # in lines that a program printed: they stay as they are, and scroll
LONG_TOKEN = re.compile(r'(<span class="[^"]*">)([^<]*\n[^<]*)</span>')


def lines(found: re.Match) -> str:
    "Each line of code an element of its own, which knows how far it is indented: site.css lets it go on below where it is longer than the page is wide."
    code = LONG_TOKEN.sub(lambda token: "\n".join(f"{token[1]}{part}</span>" if part else "" for part in token[2].split("\n")), found[2])
    parts = code.split("\n")
    if "code-line" in code or any(part.count("<span") != part.count("</span") for part in parts):  # elements within a token that runs over several lines
        return found[0]
    plain = [html.unescape(re.sub("<[^>]*>", "", part)) for part in parts]
    if "output " in found[1] and sum(map(bool, map(COLUMNS.search, plain))) > 1:
        return found[0]
    return found[1] + "".join(f'<span class="code-line" style="--in:{len(text) - len(text.lstrip(" "))}">{part}\n</span>' for text, part in zip(plain, parts)) + "</pre>"


CELL = re.compile(r"<(t[dh])\b([^>]*)>(.*?)</\1>", re.S)
NAME = re.compile(r'(<code\b[^>]*>|<span class="pre">)([^<]+)(?=<)')
JOINT = re.compile(r"(?<=[._=,/(\[|])(?=\w)|(?<=[a-z0-9])(?=[A-Z])")
NARROW = 16  # letters that the first column of a table has on a phone; site.css gives it 38 hundredths


def jointed(found: re.Match) -> str:
    "A cell of a table whose long names may go on below at their joints. One that has none has the column as wide as itself."
    parts = []

    def name(code: re.Match) -> str:
        words = [JOINT.sub("<wbr>", word) if len(html.unescape(word)) > NARROW else word for word in re.split(r"(\s+)", code[2])]
        parts.extend(html.unescape(part) for word in words for part in word.split("<wbr>"))
        return code[1] + "".join(words)

    cell = NAME.sub(name, found[3])
    mark = " data-wide" if max(map(len, parts), default=0) > NARROW and "data-wide" not in found[2] else ""
    return f"<{found[1]}{found[2]}{mark}>{cell}</{found[1]}>"


# Style sheets ----------------------------------------------------------------------------------------------------

LINK = re.compile(r'[ \t]*<link(?=[^>]*\brel="stylesheet")[^>]*\bhref="([^":]*?)_static/([^"?]+\.css)[^"]*"[^>]*>\n?')
IMPORT = re.compile(r'@import "([^"]+)";')
CLASSES = re.compile(r'class=\\?"([^"\\]*)')
CLASS = re.compile(r"\.((?:[\w-]|\\.)+)")
CHOICE = re.compile(r":(?:is|where|not|has)\([^()]*\)")  # holds with one of its classes, or without any
SCRIPTED = re.compile(r"tooltip|dropdown|collaps|^(?:show|fade|active)$")  # classes that Bootstrap gives to what pages use of it


def classes(site: Path, pages: Iterable[str]) -> set[str]:
    "The classes that elements can have: those in these texts of pages and in the frames of demos, and whatever a script may give them."
    found = words_of_scripts(site / "_static")
    for text in (*pages, *(path.read_text(encoding="utf-8") for path in (site / "demos").rglob("*.js"))):
        for names in set(CLASSES.findall(text)):
            found.update(names.split())
    return found


def words_of_scripts(static: Path) -> set[str]:
    "All words of the scripts, which may be classes; read again only where a script has changed."
    paths = [path for path in sorted(static.rglob("*.js")) if path.name != "bootstrap.js"]
    kept, sizes = static.parent / ".words.json", [[path.relative_to(static).as_posix(), path.stat().st_size] for path in paths]
    known = json.loads(kept.read_text()) if kept.exists() else {}
    if known.get("sizes") != sizes or max(path.stat().st_mtime for path in paths) > kept.stat().st_mtime:
        words = set().union(*(re.findall(r"[\w-]+", path.read_text(encoding="utf-8")) for path in paths))
        kept.write_text(json.dumps(known := {"sizes": sizes, "words": sorted(words)}))
    return set(known["words"])


def apart(tokens: list) -> list[str]:
    "The selectors of a list, which stand between commas."
    parts = [[]]
    for token in tokens:
        if token.type == "literal" and token.value == ",": parts.append([])
        else: parts[-1].append(token)
    return [tinycss2.serialize(part).strip() for part in parts]


def used_rules(rules: list, known: set[str]) -> str:
    "These rules without the selectors that ask for a class which no element has."

    def applies(selector: str) -> bool:
        while CHOICE.search(selector):
            selector = CHOICE.sub("", selector)
        return all(name.replace("\\", "") in known or SCRIPTED.search(name) for name in CLASS.findall(selector))

    kept = []
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = [selector for selector in apart(rule.prelude) if applies(selector)]
            if selectors:
                kept.append(",".join(selectors) + "{" + tinycss2.serialize(rule.content) + "}")
        elif rule.type == "at-rule" and rule.content and rule.lower_at_keyword in ("media", "supports", "layer"):
            inner = used_rules(tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True), known)
            if inner:
                kept.append(f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inner}}}")
        else:
            kept.append(rule.serialize())
    return "\n".join(kept)


def whole(path: Path) -> str:
    "A style sheet with those that it imports."
    return IMPORT.sub(lambda found: whole((path.parent / found[1]).resolve()), path.read_text(encoding="utf-8"))


def sheet(text: str, names: list[str], known: set[str]) -> str:
    "The style sheets called `names`, whose `text` is given, as one."
    text = RULES.sub("", FONT.sub("", text))
    kept = used_rules(tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True), known)
    return f"/* {' '.join(names)} */\n{kept}\n"


def style(site: Path, texts: dict[Path, str]):
    "One style sheet for all pages, in place of those that they link to."
    static, target = site / "_static", site / "_static" / SHEET
    names = next(([name for _, name in LINK.findall(text)] for text in texts.values() if "_static/site.css" in text), None)
    if names is None:  # no page is new
        names = re.match(r"/\* (.*) \*/", target.read_text(encoding="utf-8"))[1].split() if target.exists() else []
    elif FROM not in names:
        names.append(FROM)
    if not names:
        return
    known, kept = classes(site, texts.values()), static / f"{SHEET}.made-of"
    given = "\n".join(whole(static / name) for name in names)
    made_of = hashlib.sha256("\n".join([Path(__file__).read_text(encoding="utf-8"), *names, *sorted(known), given]).encode()).hexdigest()
    if not target.exists() or not kept.exists() or kept.read_text() != made_of:  # the page of a preview asks for the same rules again and again
        target.write_text(sheet(given, names, known), encoding="utf-8")
        kept.write_text(made_of)
    text = target.read_text(encoding="utf-8")
    version = hashlib.sha256(text.encode()).hexdigest()[:8]
    for path, page in texts.items():
        found = LINK.search(page)
        if found:
            link = f'<link rel="stylesheet" type="text/css" href="{found[1]}_static/{SHEET}?v={version}" />\n'
            at = found.start()
            texts[path] = page[:at] + link + LINK.sub("", page[at:])


# Scripts ---------------------------------------------------------------------------------------------------------

THEMED = re.compile(r"""document\.documentElement\.dataset\.theme = localStorage\.getItem\("theme"\) \|\| "auto";""")
SETTLED = """document.documentElement.dataset.theme = ["light", "dark"].find(each => each === document.documentElement.dataset.mode)
      || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");"""
LIGHT = re.compile(r'(<html\b[^>]*data-theme=")auto(?=")')  # which of the two is settled by a script: without any, the page is light
OPTIONS = re.compile(r'<script src="[^"]*documentation_options\.js[^"]*"></script>')
PRELOAD = re.compile(r'\s*<link rel="preload" as="script"[^>]*>')
LATER = re.compile(r'\s*<script (?:defer )?src="([^"]*_static/(?:doctools|sphinx_highlight|clipboard\.min|copybutton|scripts/[\w-]+)\.js[^"]*)"></script>')
FIRST = re.compile(r'<script src="([^"]*_static/access\.js[^"]*)"></script>')
# The theme asks every box how wide it is, again after each change of the page; access.js asks those in view.
SCANS = re.compile(r',"complete"===document\.readyState\?(\w+)\(\):window\.addEventListener\("load",\1\)')
CHATTER = re.compile(r"console\.(?:log|info|debug)(?=\()")  # what the theme's scripts tell their authors


def scripts(text: str, options: str) -> str:
    "The page with its scripts in the order in which a reader needs what they do."
    later = LATER.findall(text)
    text = PRELOAD.sub("", LATER.sub("", OPTIONS.sub(f"<script>{options}</script>", text)))
    return FIRST.sub(rf'<script defer src="\1" data-later="{" ".join(later)}"></script>', text)


def lighten(site: Path, pages: list[Path]):
    "Take out of these HTML files of the site what they do not need; what is light already stays as it is."
    static = site / "_static"
    before = {path: path.read_text(encoding="utf-8") for path in pages}
    library = static / "scripts" / "fontawesome.js"
    if library.exists():
        used = set().union(*map(ICON.findall, before.values()))
        (static / FROM).write_text(icons(used, library.read_text(encoding="utf-8")), encoding="utf-8")
    for theme in (static / "scripts").glob("*-theme.js"):
        theme.write_text(CHATTER.sub("void", SCANS.sub("", theme.read_text(encoding="utf-8"))), encoding="utf-8")
    options = static / "documentation_options.js"
    tokens = plain_tokens((static / "pygments.css").read_text(encoding="utf-8"))

    def code(found: re.Match) -> str:
        return CODE.sub(lines, tokens.sub(r"\1", found[0]))

    texts = {path: LIGHT.sub(r"\1light", THEMED.sub(SETTLED, CELL.sub(jointed, CODE.sub(code, THEME.sub("", text)))), count=1) for path, text in before.items()}
    for path in texts:
        if path.name == "search.html":
            texts[path] = CHATTER.sub("void", texts[path])
        else:
            texts[path] = scripts(SEARCH.sub("", texts[path]), options.read_text(encoding="utf-8").strip())
    style(site, texts)
    for path, text in texts.items():
        if text != before[path]:
            path.write_text(text, encoding="utf-8")
    for file in (*static.rglob("fontawesome.js*"), *static.rglob("*.map"), *(static / "vendor").rglob("fa-*.woff2")):
        file.unlink(missing_ok=True)
