/* chat_template_vectors.c - what the reference implementation of Jinja makes of these templates:
 * version 3.1, trim_blocks and lstrip_blocks on, the JSON filter that chat templates run with. */
#include "tests/unit/model/chat_template_vectors.h"

const char chat_vector_messages[] =
    "[{\"role\": \"system\", \"content\": \" Be brief.\\n\"}, {\"role\": \"user\", \"cont"
    "ent\": \"Hi 'q' \303\251\346\274\242\"}, {\"role\": \"assistant\", \"content\": \"Ye"
    "s.\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1, \""
    "b\": [1.5, null, true]}}}]}, {\"role\": \"user\", \"content\": \"bye\"}]";

const char chat_vector_extra[] =
    "{\"n\": 3, \"f\": 2.5, \"s\": \"hello world\", \"l\": [3, 1, 2], \"d\": {\"k\": \"v"
    "\", \"z\": [1, {\"y\": null}]}, \"e\": \"\", \"t\": true, \"x\": \"X\"}";

const struct chat_vector chat_vectors_space[] = {
    {"a\n {% if t %}\n b\n {% endif %}\nc",
     "a\n b\nc"},
    {"a\n {%- if t %}\n b\n {%- endif %}\nc",
     "a bc"},
    {"a\n {% if t -%}\n b\n {% endif -%}\nc",
     "a\nb\nc"},
    {"a\n {%+ if t %}\n b\n {%+ endif %}\nc",
     "a\n  b\n c"},
    {"a {% if t %} b {% endif %} c",
     "a  b  c"},
    {"a\n  {{ x }}  \nb",
     "a\n  X  \nb"},
    {"a\n  {{- x -}}  \nb",
     "aXb"},
    {"a\n  {{+x}}  \nb",
     "a\n  X  \nb"},
    {"{{-1}}|{{ -1 }}",
     "1|-1"},
    {"  {# note #}\nb",
     "b"},
    {"a {#- note -#} \n b",
     "ab"},
    {"a\n {#+ note +#}\nb",
     "a\n \nb"},
    {"a\n  {# one\n two #}\nb",
     "a\nb"},
    {"{% if t +%}\nb{% endif +%}\nc",
     "\nb\nc"},
    {"{% if t %}\n\n\nb\n\n{% endif %}\n\nc\n",
     "\n\nb\n\n\nc"},
    {"c\n\n",
     "c\n"},
    {"\n\n {% if t %}\n\n {% endif %}\n\n",
     "\n\n\n"},
    {"{% for i in l %}\n  - {{ i }}\n{% endfor %}\nend",
     "  - 3\n  - 1\n  - 2\nend"},
    {"{% for i in l -%}\n  - {{ i }}\n{%- endfor %}\nend",
     "- 3- 1- 2end"},
    {"{%- for i in l %}\n{{- i }},\n{%- endfor -%}\n end",
     "3,1,2,end"},
    {"\t{% set y = 1 %}\t{% set z = 2 %}\n{{ y }}{{ z }}",
     "\t12"},
    {"a\r\n{% if t %}\r\nb\r{% endif %}\r\nc\r\n",
     "a\nb\nc"},
    {"\302\240{% if t %}b{% endif %}",
     "b"},
    {"a\n\343\200\200{% if t -%}\342\200\203b{% endif %}",
     "a\nb"},
    {"{{ '{{' }}{{ '}}' }}{{ '%}' }}{ {% if t %}%{% endif %}}",
     "{{}}%}{ %}"},
    {"{{ {'a': {'b': 1}}['a']['b'] }}{{ [[1]][0][0] }}",
     "11"},
    {"{% if t %}{% if t %}\n  {% endif %}\n{% endif %}x",
     "x"},
    {"a\n  {% if t %}  {# c #}  {% endif %}\nb",
     "a\n    b"},
    {"{#- c -#}",
     ""},
    {" {%- set q = '-%}' -%} {{ q }}",
     "-%}"},
};
const size_t chat_vectors_space_n = sizeof chat_vectors_space / sizeof *chat_vectors_space;

const struct chat_vector chat_vectors_expr[] = {
    {"{{ n + 1 - 2 * 3 }}",
     "-2"},
    {"{{ -7 % 3 ~ ' ' ~ 7 % -3 ~ ' ' ~ -7 // 2 ~ ' ' ~ 7 / 2 }}",
     "2 -2 -4 3.5"},
    {"{{ f * 2 ~ ' ' ~ 1e22 ~ ' ' ~ 1e-7 ~ ' ' ~ (0.1 + 0.2) }}",
     "5.0 1e+22 1e-07 0.30000000000000004"},
    {"{{ 'ab' * n }}",
     "ababab"},
    {"{{ n * 'ab' ~ 'x' * 0 }}",
     "ababab"},
    {"{{ s[0] ~ s[-1] ~ s[1:3] ~ s[:-9] ~ s[::-1] ~ s[::4] ~ s[50] }}",
     "hdelhedlrow ollehhor"},
    {"{{ l[1:] ~ l[::-1] ~ l[-2:] ~ l[5:2] ~ l[9:-9:-1] }}",
     "[1, 2][2, 1, 3][1, 2][][2, 1, 3]"},
    {"{{ messages[1].content[-2] ~ messages[1].content|length }}",
     "\303\2519"},
    {"{{ messages[0].content.strip() ~ '|' ~ messages[0].content|trim }}",
     "Be brief.|Be brief."},
    {"{{ '  a b  c '.split()|join('/') ~ s.split('o')|join('/') ~ s.split('l', 1)[-1] }}",
     "a/b/chell/ w/rldlo world"},
    {"{{ '  a b  c '.split(none, 1) }}",
     "['a', 'b  c ']"},
    {"{{ s.replace('l', 'LL', 2) ~ s|replace('o', '0') }}",
     "heLLLLo worldhell0 w0rld"},
    {"{{ s|capitalize ~ s|title ~ s|upper ~ 'ABC'|lower ~ \"it's\"|title ~ \"it's\".title("
     ") }}",
     "Hello worldHello WorldHELLO WORLDabcIt'sIt'S"},
    {"{{ s.startswith('he') ~ s.endswith('x') ~ s.lstrip('hel') ~ s.rstrip('dl') }}",
     "TrueFalseo worldhello wor"},
    {"{{ l|first ~ l|last ~ s|first ~ l|join(', ') ~ d|join }}",
     "32h3, 1, 2kz"},
    {"{{ d.items()|list }}",
     "[('k', 'v'), ('z', [1, {'y': None}])]"},
    {"{{ d.keys()|list ~ d.values()|list ~ d.get('k') ~ d.get('q') ~ d.get('q', 7) }}",
     "['k', 'z']['v', [1, {'y': None}]]vNone7"},
    {"{{ d|tojson }}",
     "{\"k\": \"v\", \"z\": [1, {\"y\": null}]}"},
    {"{{ messages[2]|tojson(indent=2) }}",
     "{\n  \"role\": \"assistant\",\n  \"content\": \"Yes.\",\n  \"tool_calls\": [\n"
     "    {\n      \"function\": {\n        \"name\": \"f\",\n        \"arguments\": {\n"
     "          \"a\": 1,\n          \"b\": [\n            1.5,\n            null,\n"
     "            true\n          ]\n        }\n      }\n    }\n  ]\n"
     "}"},
    {"{{ messages[2].tool_calls[0].function.arguments }}",
     "{'a': 1, 'b': [1.5, None, True]}"},
    {"{{ {'a': 1, 2: 'x', 'b': [{}]}|tojson }}",
     "{\"a\": 1, \"2\": \"x\", \"b\": [{}]}"},
    {"{{ 'a\"b\\\\\\n<&>'|tojson }}",
     "\"a\\\"b\\\\\\n<&>\""},
    {"{{ ['it\\'s', 'say \"x\"', 'both\\'\"', '\\n'] }}",
     "[\"it's\", 'say \"x\"', 'both\\'\"', '\\n']"},
    {"{{ [1, 'a', 2.0, none, true] ~ (1,) ~ () ~ {} }}",
     "[1, 'a', 2.0, None, True](1,)(){}"},
    {"{{ ('12'|int + 1) ~ '12.7'|int ~ 'x'|int ~ 'x'|int(5) ~ f|int ~ '3.5'|float }}",
     "13120523.5"},
    {"{{ q ~ q|default('D') ~ e|default('D') ~ e|default('D', true) ~ none|default('D') }}",
     "DDNone"},
    {"{{ q is defined ~ s is defined ~ q is not defined ~ none is none ~ s is string ~ n i"
     "s string }}",
     "FalseTrueTrueTrueTrueFalse"},
    {"{{ d is mapping ~ l is iterable ~ n is iterable ~ n is number ~ t is true ~ f is flo"
     "at ~ n is integer }}",
     "TrueTrueFalseTrueTrueTrueTrue"},
    {"{{ n is odd ~ n is divisibleby 3 ~ n is in [1, 3] ~ n is not in [1, 3] ~ s is eq 'x'"
     " }}",
     "TrueTrueTrueFalseFalse"},
    {"{{ 1 < n < 5 }}",
     "True"},
    {"{{ 1 < n < 2 }}",
     "False"},
    {"{{ n == 3.0 and t == 1 and 'a' < 'b' and l == [3, 1, 2] }}",
     "True"},
    {"{{ 'o w' in s and 9 not in l and 'k' in d and 'x' not in q }}",
     "True"},
    {"{{ n and s }}",
     "hello world"},
    {"{{ e or s }}",
     "hello world"},
    {"{{ not n == 3 }}",
     "False"},
    {"{{ 'y' if e else 'z' if q else 'w' }}",
     "w"},
    {"{{ 'y' if e }}",
     ""},
    {"{{ range(3)|list ~ range(1, 4)|list ~ range(5, 0, -2)|list }}",
     "[0, 1, 2][1, 2, 3][5, 3, 1]"},
    {"{{ messages|map(attribute='role')|join(' ') }}",
     "system user assistant user"},
    {"{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }}",
     "[\"Hi 'q' \303\251\346\274\242\", 'bye']"},
    {"{{ messages|rejectattr('role', 'eq', 'user')|list|length ~ messages|selectattr('tool"
     "_calls', 'defined')|list|length }}",
     "21"},
    {"{{ l|select('odd')|list ~ ['a', 'b']|map('upper')|join ~ messages|map(attribute='q',"
     " default='-')|join }}",
     "[3, 1]AB----"},
    {"{{ l|reverse|list ~ s|reverse ~ (l + [4])|length }}",
     "[2, 1, 3]dlrow olleh4"},
    {"{{ 'x' \"y\" 'z' }}",
     "xyz"},
    {"{{ '\\x41\\u00e9\\n\\t\\q\\'\\101\\\\' }}",
     "A\303\251\n\t\\q'A\\"},
    {"{{ 1 ~ 2 * 3 ~ none ~ true }}",
     "16NoneTrue"},
    {"{{ - -3 ~ -n ~ +n }}",
     "3-33"},
    {"{{ strftime_now is defined ~ tools is none ~ documents is none ~ namespace is define"
     "d }}",
     "FalseTrueTrueTrue"},
    {"{{ [s.foo] ~ none.foo ~ n.foo ~ none['a'] ~ l[none] ~ d.q }}",
     "[Undefined]"},
    {"{{ '\343\200\200a '|trim ~ '|' ~ 'a b c'.split() }}",
     "a|['a', 'b', 'c']"},
    {"{{ n if n is defined else 'u' }}",
     "3"},
    {"{{ (n, s)[1] ~ {'a': [1, 2]}['a'][1] ~ d.z[1].y ~ d['z'][0] }}",
     "hello world2None1"},
};
const size_t chat_vectors_expr_n = sizeof chat_vectors_expr / sizeof *chat_vectors_expr;

const struct chat_vector chat_vectors_stmt[] = {
    {"{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop."
     "revindex }} {{ loop.first }} {{ loop.last }} {{ m.role }}{% if loop.previtem is defi"
     "ned %} after {{ loop.previtem.role }}{% endif %}{% if loop.nextitem %} before {{ loo"
     "p.nextitem.role }}{% endif %}\n{% else %}none{% endfor %}",
     "1/4 0 4 True False system before user2/4 1 3 False False user after system before as"
     "sistant3/4 2 2 False False assistant after user before user4/4 3 1 False True user a"
     "fter assistant"},
    {"{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{{ loop.la"
     "st }};{% else %}no{% endfor %}{% for m in messages if m.role == 'tool' %}x{% else %}"
     "no{% endfor %}",
     "1Hi 'q' \303\251\346\274\242False;2byeTrue;no"},
    {"{% set x = 1 %}{% for m in messages %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{"
     "{ x }}",
     "121212121"},
    {"{% set ns = namespace(n=0, found=false) %}{% for m in messages %}{% set ns.n = ns.n "
     "+ 1 %}{% if m.role == 'assistant' %}{% set ns.found = true %}{% endif %}{% endfor %}"
     "{{ ns.n }} {{ ns.found }} {{ ns.other is defined }}",
     "4 True False"},
    {"{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}{% if m.role == "
     "'system' %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
     "userassistant"},
    {"{% for a in [1, 2] %}{% for b in 'xy' %}{{ a }}{{ b }}{{ loop.index }}{% endfor %}{{"
     " loop.index }}{% endfor %}{{ loop is defined }}",
     "1x11y212x12y22False"},
    {"{% set t %}a{{ messages|length }}\nb{% endset %}[{{ t }}]{{ t|length }}",
     "[a4\nb]4"},
    {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }},{% endfor %}{% for a, b in"
     " [[1, 2], (3, 4)] %}{{ a + b }},{% endfor %}",
     "a=1,b=2,3,7,"},
    {"{% for m in messages %}{% generation %}{{ m.content }}{% set leak = 1 %}{% endgenera"
     "tion %}{{ leak }}\n{% endfor %}",
     " Be brief.\n\nHi 'q' \303\251\346\274\242\nYes.\nbye\n"},
    {"{% if messages %}{% set y = 'set' %}{% endif %}{{ y }}{% if false %}a{% elif n > 3 %"
     "}b{% elif n > 2 %}c{% else %}d{% endif %}",
     "setc"},
    {"{% macro f(a, b='B') %}({{ a }}|{{ b }}){% endmacro %}{{ f(1) }}{{ f(b=2, a=n) }}{% "
     "for m in messages %}{{ f(m.role) }}{% endfor %}",
     "(1|B)(3|2)(system|B)(user|B)(assistant|B)(user|B)"},
    {"{% set g = 'G' %}{% macro f() %}{{ g }}{{ m }}{% set g = 'L' %}{{ g }}{% endmacro %}"
     "{% for m in messages %}{{ f() }}{% set g = 'H' %}{{ f() }}{% endfor %}{{ f() }}{{ g "
     "}}",
     "GLGLGLGLGLGLGLGLGLG"},
    {"{% macro r(n) %}{% if n > 0 %}{{ n }}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(5) "
     "}}",
     "54321"},
    {"{% set x = namespace(v='') %}{% for m in messages %}{% set x.v = x.v ~ m.content ~ '"
     "|' %}{% endfor %}{{ x.v }}{{ x.v|length }}{{ x.v[3:9] }}{{ x.v.split('|')|length }}",
     " Be brief.\n|Hi 'q' \303\251\346\274\242|Yes.|bye|31 brief5"},
    {"{%- if strftime_now is defined %}{%- set date = strftime_now(\"%d %b %Y\") %}{%- els"
     "e %}{%- set date = \"26 Jul 2024\" %}{%- endif %}{{ date }}",
     "26 Jul 2024"},
    {"{%- if messages[0].role == 'system' %}\n    {%- set system = messages[0].content | t"
     "rim %}\n    {%- set rest = messages[1:] %}\n{%- else %}\n    {%- set system = \"\" %"
     "}\n    {%- set rest = messages %}\n{%- endif %}\n{{ x }}<|start|>system<|end|>\n"
     "\n{{ system }}<|eot|>\n{%- for message in rest %}\n    {%- if not (message.role == '"
     "tool' or 'tool_calls' in message) %}\n        {{- '<|start|>' + message['role'] + '<"
     "|end|>\\n\\n' + message['content'] | trim + '<|eot|>' }}\n    {%- elif 'tool_calls' "
     "in message %}\n        {%- if not message.tool_calls|length == 1 %}\n"
     "            {{- raise_exception(\"one call only\") }}\n        {%- endif %}\n"
     "        {%- set call = message.tool_calls[0].function %}\n        {{- '{\"name\": \""
     "' + call.name + '\", \"parameters\": ' }}\n        {{- call.arguments | tojson }}\n"
     "        {{- \"}\" }}\n    {%- endif %}\n{%- endfor %}",
     "X<|start|>system<|end|>\n\nBe brief.<|eot|><|start|>user<|end|>\n"
     "\nHi 'q' \303\251\346\274\242<|eot|>{\"name\": \"f\", \"parameters\": {\"a\": 1, \"b"
     "\": [1.5, null, true]}}<|start|>user<|end|>\n\nbye<|eot|>"},
    {"{%- set ns = namespace(last=messages|length - 1, open=true) %}\n"
     "{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - lo"
     "op.index0 %}\n    {%- if ns.open and message.role == \"user\" and not(message.conten"
     "t.startswith('<r>')) %}\n        {%- set ns.open = false %}\n"
     "        {%- set ns.last = index %}\n    {%- endif %}\n{%- endfor %}\n"
     "{{ ns.last }}\n{% for m in messages %}\n  {% if m.role == 'user' and (loop.index0 =="
     " 0 or messages[loop.index0 - 1].role != 'user') %}\n  - {{ m.content }}\n"
     "  {% endif %}\n{% endfor %}\nend",
     "3\n  - Hi 'q' \303\251\346\274\242\n  - bye\nend"},
};
const size_t chat_vectors_stmt_n = sizeof chat_vectors_stmt / sizeof *chat_vectors_stmt;
