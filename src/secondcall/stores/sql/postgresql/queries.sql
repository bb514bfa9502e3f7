-- Parameters $1 to $4 of most queries are tenant_id, user_id, in_session, session_id.

-- name: find_epoch
SELECT epoch FROM {schema}.users WHERE tenant_id = $1 AND user_id = $2;

-- name: add_user
INSERT INTO {schema}.users (tenant_id, user_id, epoch, admitted_us) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, user_id) DO UPDATE SET admitted_us = users.admitted_us
RETURNING epoch;

-- name: is_erased
SELECT 1 FROM {schema}.erased WHERE mark = $1;

-- name: load_state
SELECT version, body, updated_us, updated_by, schema, expires_us, due_us FROM {schema}.states
WHERE tenant_id = $1 AND user_id = $2 AND in_session = $3 AND session_id = $4
AND body IS NOT NULL;

-- name: add_state
WITH owner AS MATERIALIZED (
    SELECT 1 AS here FROM {schema}.users
    WHERE tenant_id = $1 AND user_id = $2 AND epoch = $5 FOR KEY SHARE
), changed AS (
    INSERT INTO {schema}.states AS s (
        tenant_id, user_id, in_session, session_id, version, schema, updated_us, updated_by,
        expires_us, due_us, body, whole_user_id, whole_session_id
    ) SELECT $1, $2, $3, $4, 1, $6, $7, $8, $9, $10, $11, $13, $14 FROM owner
    ON CONFLICT (tenant_id, user_id, in_session, session_id) DO UPDATE SET
        version = s.version + 1, schema = excluded.schema, updated_us = excluded.updated_us,
        updated_by = excluded.updated_by, expires_us = excluded.expires_us,
        due_us = excluded.due_us, holder = NULL, held_until_us = NULL, body = excluded.body
    WHERE s.body IS NULL
    RETURNING version
), logged AS (
    INSERT INTO {schema}.state_history (
        tenant_id, user_id, in_session, session_id, version, schema, at_us, by, summary, body
    ) SELECT $1, $2, $3, $4, version, $6, $7, $8, $12, $11 FROM changed
)
SELECT (SELECT here FROM owner), (SELECT version FROM changed);

-- name: set_state
WITH owner AS MATERIALIZED (
    SELECT 1 AS here FROM {schema}.users
    WHERE tenant_id = $1 AND user_id = $2 AND epoch = $5 FOR KEY SHARE
), changed AS (
    UPDATE {schema}.states AS s SET
        version = s.version + 1, schema = $6, updated_us = $7, updated_by = $8, expires_us = $9,
        due_us = $10, holder = NULL, held_until_us = NULL, body = $11
    FROM owner
    WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.in_session = $3 AND s.session_id = $4
    AND s.version = $13 AND s.body IS NOT NULL
    RETURNING s.version
), logged AS (
    INSERT INTO {schema}.state_history (
        tenant_id, user_id, in_session, session_id, version, schema, at_us, by, summary, body
    ) SELECT $1, $2, $3, $4, version, $6, $7, $8, $12, $11 FROM changed
)
SELECT (SELECT here FROM owner), (SELECT version FROM changed);

-- name: delete_state
WITH owner AS MATERIALIZED (
    SELECT 1 AS here FROM {schema}.users
    WHERE tenant_id = $1 AND user_id = $2 AND epoch = $5 FOR KEY SHARE
), changed AS (
    UPDATE {schema}.states AS s SET
        version = s.version + 1, updated_us = $6, updated_by = $7, expires_us = NULL,
        due_us = NULL, holder = NULL, held_until_us = NULL, body = NULL
    FROM owner
    WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.in_session = $3 AND s.session_id = $4
    AND s.version = $9 AND s.body IS NOT NULL
    RETURNING s.version, s.schema
), logged AS (
    INSERT INTO {schema}.state_history (
        tenant_id, user_id, in_session, session_id, version, schema, at_us, by, summary, body
    ) SELECT $1, $2, $3, $4, version, schema, $6, $7, $8, NULL FROM changed
)
SELECT (SELECT here FROM owner), (SELECT version FROM changed);

-- name: list_state_changes
SELECT version, at_us, by, body, schema, summary FROM {schema}.state_history
WHERE tenant_id = $1 AND user_id = $2 AND in_session = $3 AND session_id = $4 AND version < $5
ORDER BY version DESC LIMIT $6;

-- name: newest_state_change_to_trim
SELECT version FROM {schema}.state_history
WHERE tenant_id = $1 AND user_id = $2 AND in_session = $3 AND session_id = $4
ORDER BY version DESC OFFSET $5 LIMIT 1;

-- name: trim_some_state_changes
DELETE FROM {schema}.state_history
WHERE tenant_id = $1 AND user_id = $2 AND in_session = $3 AND session_id = $4
AND version IN (
    SELECT version FROM {schema}.state_history
    WHERE tenant_id = $1 AND user_id = $2 AND in_session = $3 AND session_id = $4
    AND (version <= $5 OR at_us < $6) LIMIT 1000
);

-- name: list_states
SELECT in_session, coalesce(whole_session_id, session_id) AS name FROM {schema}.states
WHERE tenant_id = $1 AND user_id = $2 AND (in_session, session_id) >= ($3, left($4, 160))
AND (in_session, coalesce(whole_session_id, session_id)) > ($3, $4) AND body IS NOT NULL
ORDER BY in_session, name LIMIT $5;

-- name: list_due_states
SELECT user_id, in_session, session_id FROM {schema}.states
WHERE tenant_id = $1 AND due_us <= $2 AND coalesce(held_until_us, $2) <= $2
ORDER BY due_us, user_id, in_session, session_id LIMIT $3;

-- name: hold_due_states
WITH due AS MATERIALIZED (
    SELECT in_session, session_id FROM {schema}.states
    WHERE tenant_id = $1 AND user_id = $2
    AND (in_session, session_id) IN (SELECT * FROM unnest($3::smallint[], $4::text[]))
    AND due_us <= $5 AND coalesce(held_until_us, $5) <= $5
    FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.states AS s SET holder = $6, held_until_us = $7
FROM due
WHERE s.tenant_id = $1 AND s.user_id = $2
AND s.in_session = due.in_session AND s.session_id = due.session_id
RETURNING s.due_us, s.user_id, s.in_session, s.session_id,
    coalesce(s.whole_user_id, s.user_id), coalesce(s.whole_session_id, s.session_id);

-- name: erase_user
DELETE FROM {schema}.users WHERE tenant_id = $1 AND user_id = $2 RETURNING epoch;

-- name: add_erased
INSERT INTO {schema}.erased (mark) VALUES ($1) ON CONFLICT (mark) DO NOTHING;

-- name: erase_states
DELETE FROM {schema}.states WHERE tenant_id = $1 AND user_id = $2;

-- name: erase_state_history
DELETE FROM {schema}.state_history WHERE tenant_id = $1 AND user_id = $2;

-- name: count_left
SELECT
    (SELECT count(*) FROM {schema}.states WHERE tenant_id = $1 AND user_id = $2),
    (SELECT count(*) FROM {schema}.state_history WHERE tenant_id = $1 AND user_id = $2),
    (SELECT count(*) FROM {schema}.users WHERE tenant_id = $1 AND user_id = $2);

-- name: vacuum_states
VACUUM (TRUNCATE FALSE, INDEX_CLEANUP ON) {schema}.states;

-- name: vacuum_state_history
VACUUM (TRUNCATE FALSE, INDEX_CLEANUP ON) {schema}.state_history;

-- name: vacuum_users
VACUUM (TRUNCATE FALSE, INDEX_CLEANUP ON) {schema}.users;

-- name: count_old_readers
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
AND backend_type = 'client backend' AND backend_xmin IS NOT NULL AND xact_start < $1;

-- name: wrong_states
SELECT count(*) FROM {schema}.states AS s
WHERE NOT EXISTS (
    SELECT FROM {schema}.users AS u WHERE u.tenant_id = s.tenant_id AND u.user_id = s.user_id
) OR s.version < (
    SELECT max(h.version) FROM {schema}.state_history AS h
    WHERE h.tenant_id = s.tenant_id AND h.user_id = s.user_id
    AND h.in_session = s.in_session AND h.session_id = s.session_id
) OR EXISTS (
    SELECT FROM {schema}.state_history AS h
    WHERE h.tenant_id = s.tenant_id AND h.user_id = s.user_id
    AND h.in_session = s.in_session AND h.session_id = s.session_id
    AND h.version = s.version AND h.body IS DISTINCT FROM s.body
);

-- name: lost_state_changes
SELECT count(*) FROM {schema}.state_history AS h
WHERE NOT EXISTS (
    SELECT FROM {schema}.states AS s
    WHERE s.tenant_id = h.tenant_id AND s.user_id = h.user_id
    AND s.in_session = h.in_session AND s.session_id = h.session_id
);

-- name: about_server
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
    pg_is_in_recovery(), current_setting('transaction_isolation'), current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('synchronous_commit');

-- name: find_schema
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1),
    to_regclass($2) IS NOT NULL;

-- name: lock_schema
SELECT pg_advisory_xact_lock($1);

-- name: create_schema
CREATE SCHEMA {schema};

-- name: create_schema_version
CREATE TABLE {schema}.schema_version (
    one smallint PRIMARY KEY CHECK (one = 1), version integer NOT NULL
);

-- name: find_schema_version
SELECT version FROM {schema}.schema_version WHERE one = 1;

-- name: set_schema_version
INSERT INTO {schema}.schema_version (one, version) VALUES (1, $1)
ON CONFLICT (one) DO UPDATE SET version = excluded.version;
