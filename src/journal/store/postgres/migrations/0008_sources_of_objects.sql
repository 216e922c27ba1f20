ALTER TABLE objects ADD COLUMN source text;
COMMENT ON COLUMN objects.source IS 'Source whose change or crawl was the first about the object; null if no change about it is left.';
UPDATE objects SET source = oldest.source FROM (
    SELECT DISTINCT ON (json::json ->> 'object') json::json ->> 'object' AS uri, json::json ->> 'source' AS source
    FROM changes ORDER BY json::json ->> 'object', seq
) AS oldest WHERE oldest.uri = objects.uri;
