"""Texts of strangers that some output might take for markup, formulas, links or commands."""

EVIL = "evil.invalid"  # no host has this name
CALL = "taken()"  # what no script may call

HOSTILE = (
    # HTML
    f"<script>{CALL}</script>",
    f'"></code></p><img src="https://{EVIL}/x.png" onerror="{CALL}">',
    f"--><svg onload={CALL}>",
    "&lt;b&gt; &amp; &#60;",
    # Markdown, MyST and GitHub
    f"`\n\n```{{raw}} html\n<script>{CALL}</script>\n```\n\n`",
    "`\n\n```{include} /etc/passwd\n```\n\n`",
    ":::{include} /etc/passwd\n:::",
    f"{{raw-html}}`<b onclick={CALL}>x</b>`",
    "{download}`/etc/passwd`",
    "{{ 7 * 7 }} {#target .class}",
    f"[x](https://{EVIL}) ![y](https://{EVIL}/y.png) [z]: https://{EVIL} [^1]: z",
    f"<https://{EVIL}> https://{EVIL}/a|b www.{EVIL} a@{EVIL}",
    f"](https://{EVIL})",
    "@everyone fixes #12, closes owner/repository#3 and GH-4 :tada:",
    "a | b \\| c | d",
    "# heading",
    "- [x] item",
    "1. item",
    "> quotation",
    "% comment",
    "(target)=",
    "===",
    "~~~",
    "**bold** _emphasis_ ~~gone~~ `code` $x_{$ $$y$$",
    # LaTeX
    r"\input{/etc/passwd} \write18{id} ^^5cinput % # & { } ~ \\[1cm]",
    "*{x} ``quotes'' ?` !` a--b---c ,,d",
    # Spreadsheets
    "=HYPERLINK(0)",
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\t=1+1",
    "\r=1+1",
    "\uff1d1+1",
    # Terminals
    "\x1b]0;title\x07 \x1b[31mred \x9b31m \x08\x7f",
    "\u202eright to left\u2066 \ufeff \u200b \x00",
    f"[red]rich[/red] [link=https://{EVIL}]x[/link] [/] :smile:",
    # Plotly
    "%{x} %{customdata} <b>bold</b> <a href='javascript:taken()'>x</a>",
)
