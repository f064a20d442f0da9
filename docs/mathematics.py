"""Formulas set when the site is built, so that a page brings pictures of them and no program that draws them.

MathJax itself sets them, in Node.js (assets.py fetches it with npm). Each formula is kept in `.cache/docs/formulas.json`
and is set once. Glyphs that formulas share stand once on a page. Without Node.js pages load MathJax, as Sphinx does.
"""

import functools
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import assets
from executed import CACHE, replace

KEPT = CACHE / "formulas.json"
FORMULA = re.compile(r'<(span|div) (class="(?:[\w-]+ )*math notranslate nohighlight"[^>]*)>\s*(?:<span class="eqno">.*?</span>)?(\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.S)
LOADER = re.compile(r'<script[^>]*>\s*window\.MathJax\b.*?</script>\s*|<script[^>]*(?:mathjax|tex-svg|tex-mml)[^>]*></script>\s*', re.S)
GLYPH = re.compile(r'xlink:href="#(MJX-[\w-]+)"')
PROGRAM = r"""
const fs = require('fs');
require(process.argv[1] + '/es5/node-main.js').init({
  loader: { load: ['input/tex-full', 'output/svg', 'adaptors/liteDOM'] }, svg: { fontCache: 'global' }, startup: { typeset: false },
}).then(MathJax => {
  const adaptor = MathJax.startup.adaptor, output = MathJax.startup.output, set = {};
  for (const [tex, display] of JSON.parse(fs.readFileSync(0, 'utf8')))
    set[(display ? 'd' : 'i') + tex] = adaptor.innerHTML(MathJax.tex2svg(tex, { display }));
  const glyphs = {}, cache = output.fontCache.getCache();
  for (const path of adaptor.childNodes(cache)) glyphs[adaptor.getAttribute(path, 'id')] = adaptor.outerHTML(path);
  process.stdout.write(JSON.stringify({ set, glyphs }));
}).catch(error => { console.error(error); process.exit(1); });
"""


TAG = re.compile(r"<(/?)g\b([^>]*)>")
ALONE = re.compile(r'<g transform="([^"]*)">(?:<use ([^>]*)/>)?</g>')
NOISE = re.compile(r' (?:data-[\w-]+|role|focusable|xmlns|xmlns:xlink)="[^"]*"')


@functools.cache
def slim(svg: str) -> str:
    "The picture of a formula without notes on what its parts were in TeX, and without the groups that then say nothing."
    svg = re.sub(r"<(use|path|rect|line)\b([^>]*)></\1>", r"<\1\2/>", NOISE.sub("", svg))
    kept = []

    def group(tag: re.Match) -> str:
        if not tag[1]: kept.append(bool(tag[2].strip()))
        return tag[0] if (kept.pop() if tag[1] else kept[-1]) else ""

    return ALONE.sub(lambda found: f'<use transform="{found[1]}" {found[2]}/>' if found[2] and "transform" not in found[2] else found[0] if found[2] else "", TAG.sub(group, svg))


class Setter:
    "Sets formulas of pages; `ready` says whether it can."

    def __init__(self):
        self.node = shutil.which("node")
        self.folder = assets.fetch(CACHE / "mathjax", assets.MATHJAX) if self.node else None
        self.ready = self.folder is not None
        kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
        self.set, self.glyphs = kept.get("set", {}), kept.get("glyphs", {})

    def learn(self, formulas: set[tuple[str, bool]]):
        "Set those that no earlier build has set."
        new = sorted((tex, display) for tex, display in formulas if ("d" if display else "i") + tex not in self.set)
        if not new:
            return
        done = subprocess.run([self.node, "-e", PROGRAM, str(self.folder)], input=json.dumps(new), capture_output=True, text=True, encoding="utf-8")
        if done.returncode:
            raise SystemExit(f"MathJax could not set the formulas: {done.stderr[-2000:]}")
        answer = json.loads(done.stdout)
        self.set |= answer["set"]
        self.glyphs |= answer["glyphs"]
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        replace(KEPT, json.dumps({"set": self.set, "glyphs": self.glyphs}, ensure_ascii=False))

    def pages(self, paths: list[Path]):
        "Set all formulas of these HTML files."
        texts = {path: path.read_text(encoding="utf-8") for path in paths}
        texts = {path: text for path, text in texts.items() if FORMULA.search(text) or LOADER.search(text)}
        self.learn({(html.unescape(found[4]).strip(), found[3] == r"\[") for text in texts.values() for found in FORMULA.finditer(text)})
        for path, text in texts.items():
            path.write_text(self.page(text), encoding="utf-8")

    def page(self, text: str) -> str:
        used = set()

        def picture(found: re.Match) -> str:
            tex, display = html.unescape(found[4]).strip(), found[3] == r"\["
            svg = self.set[("d" if display else "i") + tex]
            used.update(GLYPH.findall(svg))
            whole = ' display="true"' if display else ""
            number = re.search(r'<span class="eqno">.*?</span>', found[0], re.S)
            shown = f'<mjx-container class="MathJax" jax="SVG"{whole} role="img" aria-label="{html.escape(tex)}">{slim(svg)}</mjx-container>'
            return f'<{found[1]} {found[2]}>{number[0] if number else ""}{shown}</{found[1]}>'

        text = LOADER.sub("", FORMULA.sub(picture, text))
        glyphs = "".join(self.glyphs[name] for name in sorted(used))
        return re.sub(r"(<body[^>]*>)", lambda found: f'{found[1]}<svg class="glyphs" aria-hidden="true" width="0" height="0"><defs>{glyphs}</defs></svg>', text, count=1)


QUIZ_TEXT = re.compile(r"(<(?:code|style|script|pre)\b.*?</(?:code|style|script|pre)>|<[^>]*>)", re.S)
DOLLARS = re.compile(r"(?<![\\$])\$(?!\s)([^$\n]+?)(?<![\s\\])\$(?!\d)")


def marked(text: str) -> str:
    "HTML of a quiz with its formulas, which stand between dollar signs, marked as Sphinx marks those of prose."
    parts = QUIZ_TEXT.split(text)
    for number in range(0, len(parts), 2):
        parts[number] = DOLLARS.sub(lambda found: f'<span class="math notranslate nohighlight">\\({found[1]}\\)</span>', parts[number])
    return "".join(parts)
