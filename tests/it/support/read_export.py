"""Reads the folder of an export with DuckDB and pyarrow, and prints what they find as JSON."""

import json
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet

folder, pattern = Path(sys.argv[1]), sys.argv[2]
files = str(folder / pattern)


def rows(query):
    return duckdb.sql(query).fetchall()


if pattern.endswith(".parquet"):
    table = pyarrow.parquet.ParquetDataset(sorted(folder.glob(pattern))).read()
    # The questions of the documentation, in the time zone of the reader.
    answers = [
        rows(query.split("```")[0].replace("changes/*.parquet", files))
        for query in Path(sys.argv[3]).read_text().split("```sql\n")[1:]
    ]
    duckdb.execute("SET TimeZone = 'UTC'")
    found = {
        "rows": rows(f"SELECT count(*) FROM '{files}'")[0][0],
        "json": [row[0] for row in rows(f"SELECT json FROM '{files}' ORDER BY seq")],
        "kinds": dict(rows(f"SELECT kind, count(*) FROM '{files}' GROUP BY kind")),
        "media_types": dict(rows(
            f"SELECT item.mediaType, count(*) FROM (SELECT unnest(items) AS item FROM '{files}') GROUP BY ALL"
        )),
        "first": [str(value) for value in rows(f"SELECT * EXCLUDE (json, items) FROM '{files}' ORDER BY seq")[0]],
        "items": rows(f"SELECT to_json(items) FROM '{files}' ORDER BY seq")[0][0],
        "types": {column[0]: column[1] for column in rows(f"DESCRIBE SELECT * FROM '{files}'")},
        "arrow_rows": table.num_rows,
        "arrow_seqs": sorted(table.column("seq").to_pylist()),
        "arrow_items": sum(len(items) for items in table.column("items").to_pylist()),
        "journals": sorted({
            pyarrow.parquet.read_metadata(file).metadata[b"tidings.journal"].decode() for file in folder.glob(pattern)
        }),
        "answers": answers,
    }
else:
    lines = f"read_ndjson_objects('{files}')"
    found = {
        "rows": rows(f"SELECT count(*) FROM {lines}")[0][0],
        "json": [row[0] for row in rows(f"SELECT json FROM {lines} ORDER BY (json->>'seq')::BIGINT")],
    }
print(json.dumps(found, default=str))
