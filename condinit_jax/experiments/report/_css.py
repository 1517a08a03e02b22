"""The style sheet of the report: colours of both themes, and a layout that suits a phone too."""

from condinit_jax.experiments.report._theme import DARK, FONTS, LIGHT, Theme

MAIN = "screen"
"""Where dark colours are used; paper is white."""

RULES = """\
*, *::before, *::after { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 2.5rem 1.25rem 5rem; max-width: 78rem;
  background: var(--page); color: var(--ink);
  font: 1rem/1.6 FONTS; overflow-wrap: break-word;
}
header { margin-bottom: 2.5rem; }
p, ul { max-width: 46rem; margin: 0 0 1rem; }
ul.long { max-width: none; columns: 26rem 2; column-gap: 2.5rem; }
ul { padding-left: 1.25rem; }
li { margin-bottom: .4rem; break-inside: avoid; }
.kind { margin: 0; color: var(--muted); font-size: .9rem; }
h1 { margin: .1rem 0 .3rem; font-size: 1.5rem; line-height: 1.3; overflow-wrap: anywhere; }
.extent { margin: 0; color: var(--muted); font-size: .9rem; }
section { margin: 0 0 3rem; }
h2 {
  margin: 0 0 1rem; padding-top: .7rem; border-top: 1px solid var(--line);
  font-size: 1.1rem; line-height: 1.3;
}
h3 { font-size: .95rem; line-height: 1.4; }
.headline {
  max-width: 44rem; margin-bottom: 1.2rem;
  font-size: clamp(1.2rem, .95rem + 1.1vw, 1.55rem); font-weight: 600; line-height: 1.35;
  text-wrap: pretty;
}
.small, figcaption { color: var(--muted); font-size: .85rem; line-height: 1.55; }
.pictures {
  display: grid; gap: 1.5rem 2.5rem; margin-bottom: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
}
figure { margin: 0; min-width: 0; max-width: 34rem; }
figure h3 { margin: 0 0 .5rem; }
img { display: block; width: 100%; height: auto; }
figcaption { margin-top: .5rem; max-width: 34rem; }
.scroll { overflow-x: auto; margin: 0 0 1rem; -webkit-overflow-scrolling: touch; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table {
  border-collapse: separate; border-spacing: 0; min-width: min(100%, 22rem);
  font-size: .875rem; line-height: 1.25rem;
}
caption { padding-bottom: .5rem; color: var(--muted); text-align: left; }
th, td { padding: .5rem .55rem; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th {
  border-bottom: 1px solid var(--muted); color: var(--muted); font-weight: 500;
  vertical-align: bottom; max-width: 9rem;
}
tbody th {
  position: sticky; left: 0; background: var(--page); font-weight: 500;
  min-width: 7rem; max-width: 16rem; overflow-wrap: break-word;
}
.named { padding-left: 2.6rem; text-indent: -1.9rem; }
.words { text-align: left; }
.figures { text-align: right; font-variant-numeric: tabular-nums; }
tbody th.figures { min-width: 0; }
td.figures { white-space: nowrap; }
td.words { min-width: 4rem; max-width: 32rem; overflow-wrap: break-word; }
.note { display: block; color: var(--muted); font-size: .91em; line-height: 1.125rem; }
.paper { display: none; }
.key {
  display: inline-block; width: 1.4rem; margin-right: .5rem; vertical-align: middle;
  text-indent: 0;
}
details { margin: 0 0 .25rem; }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; padding: .3rem 0; }
summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
details[open] > summary { margin-bottom: .5rem; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { font-size: .85em; overflow-wrap: anywhere; }
pre {
  margin: 0; padding: 1rem; overflow-x: auto; border-radius: 6px; background: var(--panel);
  line-height: 1.5; white-space: pre-wrap;
}
@media (max-width: 40rem) {
  body { padding: 1.5rem 1rem 3rem; }
  th, td { padding: .5rem; }
  tbody th { max-width: 9.5rem; }
  .named { padding-left: 2.3rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  section { margin-bottom: 1.5rem; }
  h2, h3, caption { break-after: avoid; }
  figure, tr, pre { break-inside: avoid; }
  .pictures { grid-template-columns: 1fr 1fr; gap: 1rem; }
  .scroll { overflow: visible; }
  picture, details:not([open]) { display: none; }
  section:not(:has(> :not(h2, details:not([open])))) { display: none; }
  .paper { display: block; }
  table { font-size: 7.5pt; line-height: 1.3; }
  .note { line-height: 1.3; }
  .key { width: .9rem; margin-right: .3rem; }
  .named { padding-left: 1.55rem; text-indent: -1.2rem; }
  th, td { padding: .25rem .35rem; }
  tbody th { position: static; min-width: 0; }
}
"""


def style_sheet() -> str:
    """The rules of the page.

    Returns:
        CSS.
    """
    return (
        f":root {{ color-scheme: light dark;\n{_variables(LIGHT)}}}\n"
        f"@media {MAIN} and (prefers-color-scheme: dark) {{\n:root {{\n{_variables(DARK)}}}\n}}\n"
        + RULES.replace("FONTS", FONTS)
    )


def _variables(theme: Theme) -> str:
    values = {name: getattr(theme, name) for name in ("page", "ink", "muted", "line", "panel")}
    values["accent"] = theme.accent
    values |= {f"method-{number}": color for number, color in enumerate(theme.methods)}
    return "".join(f"  --{name}: {value};\n" for name, value in values.items())
