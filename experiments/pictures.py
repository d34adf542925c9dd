"""What the drawn pictures have in common: colours for light and dark pages, texts, a frame."""

from collections.abc import Sequence

STYLE = """<style>
text { font: 13px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.ground { fill: #ffffff; stroke: #d1d9e0 } .small { fill: #59636e; font-size: 12px }
.bold { font-weight: 600 } .bar { fill: #a9b6c4 } .ours { fill: #0b7a55 } .dot { fill: #1f2328 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .ground { fill: #0d1117; stroke: #3d444d } .small { fill: #9198a1 }
.bar { fill: #4f5b69 } .ours { fill: #2ea97c } .dot { fill: #f0f6fc } }
</style>"""


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def picture(title: str, note: str, height: int, parts: Sequence[str]) -> str:
    """An SVG of 880 pixels in width: a title, a note below it, and what was drawn."""
    size = f'width="880" height="{height}" viewBox="0 0 880 {height}"'
    ground = f'<rect class="ground" x="0.5" y="0.5" width="879" height="{height - 1}" rx="8"/>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">'
    head = [text(24, 28, title, "bold"), text(24, 47, note, "small")]
    return "\n".join([opening, STYLE, ground, *head, *parts, "</svg>\n"])
