-- name: find_partition
SELECT id, epoch, change FROM partitions
WHERE tenant_id = ? AND partition = ? AND name = ? AND epoch IS NOT NULL;

-- name: add_partition
INSERT INTO partitions (tenant_id, partition, name, epoch)
SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM erased WHERE mark = ?5);

-- name: set_change
UPDATE partitions SET change = ? WHERE id = ?;

-- name: list_scopes
SELECT name FROM partitions
WHERE tenant_id = ? AND partition = ? AND epoch IS NOT NULL AND name > ?
ORDER BY name LIMIT ?;

-- name: find_session
SELECT id, first_us, last_us, items FROM sessions WHERE partition_id = ? AND session_id = ?;

-- name: add_session
INSERT INTO sessions (partition_id, session_id) VALUES (?, ?) RETURNING id;

-- name: set_session
UPDATE sessions SET first_us = ?, last_us = ?, items = ? WHERE id = ?;

-- name: session_times
SELECT
    (SELECT min(at_us) FROM changes WHERE session_number = ?1 AND newest = 1),
    (SELECT max(at_us) FROM changes WHERE session_number = ?1 AND newest = 1);

-- name: list_sessions
SELECT session_id, first_us, last_us, items FROM sessions
WHERE partition_id = ? AND items > 0 AND (last_us, session_id) < (?, ?)
ORDER BY last_us DESC, session_id DESC LIMIT ?;

-- name: list_newest_sessions
SELECT session_id, first_us, last_us, items FROM sessions
WHERE partition_id = ? AND items > 0
ORDER BY last_us DESC, session_id DESC LIMIT ?;

-- name: find_newest
SELECT change, position, at_us, digest FROM changes
WHERE session_number = ? AND item_kind = ? AND item_id = ? AND newest = 1;

-- name: add_entry
INSERT INTO changes (
    partition_id, change, kind, newest, session_number, item_kind, item_id, at_us, position,
    previous, recorded_us, digest, body
) VALUES (?, ?, 'entry', 1, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: outdate_entry
UPDATE changes SET newest = 0 WHERE partition_id = ? AND change = ?;

-- name: blank_entry
UPDATE changes SET newest = 0, digest = NULL, body = NULL
WHERE partition_id = ? AND change = ? RETURNING previous;

-- name: add_removal
INSERT INTO changes (
    partition_id, change, kind, session_number, item_kind, item_id, recorded_us
) VALUES (?, ?, 'removal', ?, ?, ?, ?);

-- name: add_announcement
INSERT INTO changes (
    partition_id, change, kind, document_kind, document_key, recorded_us
) VALUES (?, ?, 'document', ?, ?, ?);

-- name: list_changes
SELECT
    c.change, c.kind, s.session_id, c.item_kind, c.item_id, c.document_kind, c.document_key,
    c.at_us, c.position, c.recorded_us, c.body
FROM changes AS c LEFT JOIN sessions AS s ON s.id = c.session_number
WHERE c.partition_id = ? AND c.change > ?
ORDER BY c.change LIMIT ?;

-- name: find_entries
SELECT s.session_id, c.item_kind, c.item_id, c.at_us, c.body, c.change, c.position, c.recorded_us
FROM json_each(?) AS wanted CROSS JOIN sessions AS s CROSS JOIN changes AS c
WHERE s.partition_id = ? AND s.session_id = wanted.value ->> 0 AND c.session_number = s.id
AND c.item_kind = wanted.value ->> 1 AND c.item_id = wanted.value ->> 2 AND c.newest = 1;

-- name: read
SELECT s.session_id, c.item_kind, c.item_id, c.at_us, c.body, c.change, c.position, c.recorded_us
FROM changes AS c JOIN sessions AS s ON s.id = c.session_number
WHERE c.partition_id = ? AND c.newest = 1
AND (c.at_us, c.position) > (?, ?) AND (c.at_us, c.position) < (?, ?)
ORDER BY c.at_us, c.position LIMIT ?;

-- name: read_backwards
SELECT s.session_id, c.item_kind, c.item_id, c.at_us, c.body, c.change, c.position, c.recorded_us
FROM changes AS c JOIN sessions AS s ON s.id = c.session_number
WHERE c.partition_id = ? AND c.newest = 1
AND (c.at_us, c.position) > (?, ?) AND (c.at_us, c.position) < (?, ?)
ORDER BY c.at_us DESC, c.position DESC LIMIT ?;

-- name: read_session
SELECT ?1, c.item_kind, c.item_id, c.at_us, c.body, c.change, c.position, c.recorded_us
FROM changes AS c
WHERE c.session_number = ?2 AND c.newest = 1
AND (c.at_us, c.position) > (?3, ?4) AND (c.at_us, c.position) < (?5, ?6)
ORDER BY c.at_us, c.position LIMIT ?7;

-- name: read_session_backwards
SELECT ?1, c.item_kind, c.item_id, c.at_us, c.body, c.change, c.position, c.recorded_us
FROM changes AS c
WHERE c.session_number = ?2 AND c.newest = 1
AND (c.at_us, c.position) > (?3, ?4) AND (c.at_us, c.position) < (?5, ?6)
ORDER BY c.at_us DESC, c.position DESC LIMIT ?7;

-- name: document_version
SELECT version, body IS NULL FROM documents WHERE partition_id = ? AND kind = ? AND key = ?;

-- name: set_document
INSERT INTO documents (partition_id, kind, key, version, updated_us, expires_us, body)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (partition_id, kind, key) DO UPDATE SET
    version = excluded.version, updated_us = excluded.updated_us,
    expires_us = excluded.expires_us, body = excluded.body;

-- name: find_document
SELECT kind, key, version, body, updated_us, expires_us FROM documents
WHERE partition_id = ? AND kind = ? AND key = ? AND body IS NOT NULL;

-- name: list_documents
SELECT kind, key, version, body, updated_us, expires_us FROM documents
WHERE partition_id = ? AND kind = ? AND key > ? AND key >= ? AND body IS NOT NULL
ORDER BY key LIMIT ?;

-- name: list_documents_below
SELECT kind, key, version, body, updated_us, expires_us FROM documents
WHERE partition_id = ? AND kind = ? AND key > ? AND key >= ? AND key < ? AND body IS NOT NULL
ORDER BY key LIMIT ?;

-- name: set_blob
INSERT INTO blobs (partition_id, name, written_us, data) VALUES (?, ?, ?, ?)
ON CONFLICT (partition_id, name) DO UPDATE SET
    written_us = excluded.written_us, data = excluded.data;

-- name: find_blob
SELECT data FROM blobs WHERE partition_id = ? AND name = ?;

-- name: list_blobs
SELECT name, written_us FROM blobs WHERE partition_id = ?;

-- name: delete_blob
DELETE FROM blobs WHERE partition_id = ? AND name = ?;

-- name: take_lease
INSERT INTO leases (partition_id, name, holder, expires_us) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (partition_id, name) DO UPDATE SET
    holder = excluded.holder, expires_us = excluded.expires_us
WHERE holder = excluded.holder OR expires_us <= ?5
RETURNING 1;

-- name: release_lease
DELETE FROM leases WHERE partition_id = ? AND name = ? AND holder = ?;

-- name: load_state
SELECT s.version, s.body, s.updated_us, s.updated_by, s.schema, s.expires_us, s.due_us
FROM partitions AS p JOIN states AS s ON s.partition_id = p.id
WHERE p.tenant_id = ? AND p.partition = 'user' AND p.name = ? AND p.epoch IS NOT NULL
AND s.in_session = ? AND s.session_id = ? AND s.body IS NOT NULL;

-- name: find_state
SELECT s.id FROM partitions AS p JOIN states AS s ON s.partition_id = p.id
WHERE p.tenant_id = ? AND p.partition = 'user' AND p.name = ? AND p.epoch IS NOT NULL
AND s.in_session = ? AND s.session_id = ?;

-- name: add_state
INSERT INTO states (
    partition_id, tenant_id, in_session, session_id, version, schema, updated_us, updated_by,
    expires_us, due_us, body
) VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?)
ON CONFLICT (partition_id, in_session, session_id) DO UPDATE SET
    version = version + 1, schema = excluded.schema, updated_us = excluded.updated_us,
    updated_by = excluded.updated_by, expires_us = excluded.expires_us, due_us = excluded.due_us,
    holder = NULL, held_until_us = NULL, body = excluded.body
WHERE body IS NULL
RETURNING id, version;

-- name: set_state
UPDATE states SET
    version = version + 1, schema = ?, updated_us = ?, updated_by = ?, expires_us = ?,
    due_us = ?, holder = NULL, held_until_us = NULL, body = ?
WHERE partition_id = ? AND in_session = ? AND session_id = ? AND version = ? AND body IS NOT NULL
RETURNING id, version;

-- name: delete_state
UPDATE states SET
    version = version + 1, updated_us = ?, updated_by = ?, expires_us = NULL, due_us = NULL,
    holder = NULL, held_until_us = NULL, body = NULL
WHERE partition_id = ? AND in_session = ? AND session_id = ? AND version = ? AND body IS NOT NULL
RETURNING id, version, schema;

-- name: add_state_change
INSERT INTO state_history (state_id, version, schema, at_us, by, summary, body)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: list_state_changes
SELECT h.version, h.at_us, h.by, h.body, h.schema, h.summary
FROM partitions AS p JOIN states AS s ON s.partition_id = p.id
JOIN state_history AS h ON h.state_id = s.id
WHERE p.tenant_id = ?1 AND p.partition = 'user' AND p.name = ?2 AND p.epoch IS NOT NULL
AND s.in_session = ?3 AND s.session_id = ?4 AND h.version < ?5
ORDER BY h.version DESC LIMIT ?6;

-- name: newest_state_change_to_trim
SELECT version FROM state_history WHERE state_id = ? ORDER BY version DESC LIMIT 1 OFFSET ?;

-- name: trim_some_state_changes
DELETE FROM state_history WHERE state_id = ?1 AND version IN (
    SELECT version FROM state_history
    WHERE state_id = ?1 AND (version <= ?2 OR at_us < ?3) LIMIT 100
);

-- name: list_states
SELECT s.in_session, s.session_id FROM partitions AS p JOIN states AS s ON s.partition_id = p.id
WHERE p.tenant_id = ? AND p.partition = 'user' AND p.name = ? AND p.epoch IS NOT NULL
AND (s.in_session, s.session_id) > (?, ?) AND s.body IS NOT NULL
ORDER BY s.in_session, s.session_id LIMIT ?;

-- name: list_due_states
SELECT s.id, p.name, s.in_session, s.session_id
FROM states AS s JOIN partitions AS p ON p.id = s.partition_id
WHERE s.tenant_id = ?1 AND s.due_us <= ?2 AND coalesce(s.held_until_us, ?2) <= ?2
AND p.epoch IS NOT NULL
ORDER BY s.due_us, s.id LIMIT ?3;

-- name: hold_state
UPDATE states SET holder = ?, held_until_us = ? WHERE id = ?;

-- name: add_erased
INSERT OR IGNORE INTO erased (mark) VALUES (?);

-- name: detach_partition
UPDATE partitions SET epoch = NULL
WHERE tenant_id = ? AND partition = ? AND name = ? AND epoch IS NOT NULL;

-- name: erased_partitions_of_scope
SELECT id FROM partitions
WHERE tenant_id = ? AND partition = ? AND name = ? AND epoch IS NULL;

-- name: erased_partitions
SELECT id FROM partitions WHERE epoch IS NULL;

-- name: erase_leases
DELETE FROM leases WHERE partition_id = ?;

-- name: erase_some_changes
DELETE FROM changes WHERE partition_id = ?1 AND change IN (
    SELECT change FROM changes WHERE partition_id = ?1 LIMIT 100
);

-- name: erase_some_sessions
DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE partition_id = ? LIMIT 100);

-- name: erase_some_documents
DELETE FROM documents WHERE partition_id = ?1 AND (kind, key) IN (
    SELECT kind, key FROM documents WHERE partition_id = ?1 LIMIT 100
);

-- name: erase_some_blobs
DELETE FROM blobs WHERE rowid IN (SELECT rowid FROM blobs WHERE partition_id = ? LIMIT 1);

-- name: erase_some_state_history
DELETE FROM state_history WHERE (state_id, version) IN (
    SELECT h.state_id, h.version FROM states AS s JOIN state_history AS h ON h.state_id = s.id
    WHERE s.partition_id = ? LIMIT 100
);

-- name: erase_some_states
DELETE FROM states WHERE id IN (SELECT id FROM states WHERE partition_id = ? LIMIT 100);

-- name: erase_partition
DELETE FROM partitions WHERE id = ? AND epoch IS NULL;

-- name: count_left
WITH mine AS MATERIALIZED (
    SELECT id FROM partitions
    WHERE tenant_id = ?1 AND partition = ?2 AND name = ?3 AND epoch IS NOT NULL
    UNION ALL
    SELECT id FROM partitions
    WHERE tenant_id = ?1 AND partition = ?2 AND name = ?3 AND epoch IS NULL
)
SELECT
    (SELECT count(*) FROM changes WHERE partition_id IN mine),
    (SELECT count(*) FROM sessions WHERE partition_id IN mine),
    (SELECT count(*) FROM documents WHERE partition_id IN mine),
    (SELECT count(*) FROM blobs WHERE partition_id IN mine),
    (SELECT count(*) FROM states WHERE partition_id IN mine),
    (
        SELECT count(*) FROM states AS s JOIN state_history AS h ON h.state_id = s.id
        WHERE s.partition_id IN mine
    ),
    (SELECT count(*) FROM leases WHERE partition_id IN mine),
    (SELECT count(*) FROM mine);

-- name: mark_uncleaned
INSERT INTO uncleaned DEFAULT VALUES;

-- name: last_uncleaned
SELECT max(id) FROM uncleaned;

-- name: forget_uncleaned
DELETE FROM uncleaned WHERE id <= ?;

-- name: gaps
SELECT p.id, p.change, count(c.change), coalesce(min(c.change), 1), coalesce(max(c.change), 0)
FROM partitions AS p LEFT JOIN changes AS c ON c.partition_id = p.id
WHERE p.epoch IS NOT NULL
GROUP BY p.id
HAVING count(c.change) <> p.change OR coalesce(max(c.change), 0) <> p.change
OR coalesce(min(c.change), 1) <> 1;

-- name: wrong_outlines
SELECT s.partition_id, s.id FROM sessions AS s JOIN partitions AS p ON p.id = s.partition_id
LEFT JOIN (
    SELECT session_number, count(*) AS items, min(at_us) AS first_us, max(at_us) AS last_us
    FROM changes WHERE newest = 1 GROUP BY session_number
) AS c ON c.session_number = s.id
WHERE p.epoch IS NOT NULL AND (
    s.items <> coalesce(c.items, 0)
    OR (s.items > 0 AND (s.first_us <> c.first_us OR s.last_us <> c.last_us))
);

-- name: wrong_entries
SELECT c.partition_id, c.change FROM changes AS c
LEFT JOIN changes AS f ON f.partition_id = c.partition_id AND f.change = c.position
LEFT JOIN sessions AS s ON s.id = c.session_number AND s.partition_id = c.partition_id
JOIN partitions AS p ON p.id = c.partition_id
WHERE p.epoch IS NOT NULL AND c.newest = 1 AND (
    c.body IS NULL OR c.digest IS NULL OR s.id IS NULL OR f.item_id IS NOT c.item_id
    OR f.item_kind IS NOT c.item_kind OR f.session_number IS NOT c.session_number
    OR f.previous IS NOT NULL
);

-- name: orphans
SELECT
    (SELECT count(*) FROM changes WHERE partition_id NOT IN (SELECT id FROM partitions))
    + (SELECT count(*) FROM sessions WHERE partition_id NOT IN (SELECT id FROM partitions))
    + (SELECT count(*) FROM documents WHERE partition_id NOT IN (SELECT id FROM partitions))
    + (SELECT count(*) FROM blobs WHERE partition_id NOT IN (SELECT id FROM partitions))
    + (SELECT count(*) FROM leases WHERE partition_id NOT IN (SELECT id FROM partitions))
    + (SELECT count(*) FROM states WHERE partition_id NOT IN (SELECT id FROM partitions))
    + (SELECT count(*) FROM state_history WHERE state_id NOT IN (SELECT id FROM states));

-- name: wrong_states
SELECT s.partition_id, s.id FROM states AS s JOIN partitions AS p ON p.id = s.partition_id
WHERE p.epoch IS NOT NULL AND (
    s.tenant_id <> p.tenant_id OR p.partition <> 'user'
    OR s.version < (SELECT max(version) FROM state_history WHERE state_id = s.id)
    OR (SELECT body IS NOT s.body FROM state_history WHERE state_id = s.id AND version = s.version)
);
