-- What is true now. in_session 0: user-wide, session_id is then empty. tenant_id is that of the
-- partition, repeated so that a tenant's timers are found by an index. A deleted state keeps its row
-- without a body, so that its versions go on counting. held_until_us: until when a due timer is
-- some holder's.
CREATE TABLE states (
    id INTEGER PRIMARY KEY,
    partition_id INTEGER NOT NULL REFERENCES partitions (id),
    tenant_id TEXT NOT NULL,
    in_session INTEGER NOT NULL CHECK (in_session IN (0, 1)),
    session_id TEXT NOT NULL CHECK (in_session = 1 OR session_id = ''),
    version INTEGER NOT NULL CHECK (version >= 1),
    schema INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    expires_us INTEGER,
    due_us INTEGER,
    holder TEXT,
    held_until_us INTEGER,
    body BLOB,
    UNIQUE (partition_id, in_session, session_id)
) STRICT;

CREATE INDEX states_due ON states (tenant_id, due_us) WHERE due_us IS NOT NULL;

-- One row for each version, written with it. A deletion has no body.
CREATE TABLE state_history (
    state_id INTEGER NOT NULL REFERENCES states (id),
    version INTEGER NOT NULL,
    schema INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    by TEXT NOT NULL,
    summary BLOB NOT NULL,
    body BLOB,
    PRIMARY KEY (state_id, version)
) STRICT, WITHOUT ROWID;
