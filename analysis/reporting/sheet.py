"""CSV for spreadsheets: the one writer of all tables that the analysis exports, and its reader. A text that a
spreadsheet would take for a formula gets an apostrophe before it; docs/analysis.md says so. page.js does the same
for the tables of a page."""

import csv
import io
import math
import re

# As the first letter of a text (the wide ones are those of Japanese keyboards).
FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def neutral(text):
    """The same as text; a number stays one."""
    active = text.lstrip("'").startswith(FORMULA) and not NUMBER.fullmatch(text)
    return "'" + text if active else text


def written(text):
    """What neutral() was given."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(FORMULA) else text


def cell(value):
    """As a file has it: blank if absent or not finite."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return f"{value:.9g}" if isinstance(value, float) else neutral(value) if isinstance(value, str) else value


def text_of(columns, rows):
    """The text of a CSV file of rows {column: value}."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(neutral, columns))
    writer.writerows([cell(row.get(name)) for name in columns] for row in rows)
    return out.getvalue()


def rows_of(text):
    """The rows of such a file as {column: text}; csv.Error: it is none."""
    return [{name and written(name): value if value is None or isinstance(value, list) else written(value)
             for name, value in row.items()} for row in csv.DictReader(text.splitlines())]
