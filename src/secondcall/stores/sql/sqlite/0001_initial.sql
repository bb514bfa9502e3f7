-- A partition under one epoch. An erased one has no epoch any more and goes last, after its rows.
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id TEXT NOT NULL,
    partition TEXT NOT NULL,
    name TEXT NOT NULL,
    epoch BLOB,
    change INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE UNIQUE INDEX partitions_living
ON partitions (tenant_id, partition, name) WHERE epoch IS NOT NULL;

CREATE INDEX partitions_erased
ON partitions (tenant_id, partition, name) WHERE epoch IS NULL;

-- Marks of erased partitions, so that a late write cannot make them anew (stores/erased.py).
CREATE TABLE erased (
    mark BLOB PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    partition_id INTEGER NOT NULL REFERENCES partitions (id),
    session_id TEXT NOT NULL,
    first_us INTEGER NOT NULL DEFAULT 0,
    last_us INTEGER NOT NULL DEFAULT 0,
    items INTEGER NOT NULL DEFAULT 0,
    UNIQUE (partition_id, session_id)
) STRICT;

CREATE INDEX sessions_by_time
ON sessions (partition_id, last_us, session_id) WHERE items > 0;

-- The change log. newest: this entry is what its key now stands for; previous: the change that it
-- corrected; position: the change that first brought its key. A removed entry has no body.
CREATE TABLE changes (
    partition_id INTEGER NOT NULL REFERENCES partitions (id),
    change INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('entry', 'removal', 'document')),
    newest INTEGER NOT NULL DEFAULT 0,
    session_number INTEGER,
    item_kind TEXT,
    item_id TEXT,
    at_us INTEGER,
    position INTEGER,
    previous INTEGER,
    document_kind TEXT,
    document_key TEXT,
    recorded_us INTEGER NOT NULL,
    digest BLOB,
    body BLOB,
    PRIMARY KEY (partition_id, change)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX changes_by_key
ON changes (session_number, item_kind, item_id) WHERE newest = 1;

CREATE INDEX changes_by_time
ON changes (partition_id, at_us, position) WHERE newest = 1;

CREATE INDEX changes_by_session
ON changes (session_number, at_us, position) WHERE newest = 1;

-- A deleted document keeps its row without a body, so that its versions go on counting.
CREATE TABLE documents (
    partition_id INTEGER NOT NULL REFERENCES partitions (id),
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    expires_us INTEGER,
    body BLOB,
    PRIMARY KEY (partition_id, kind, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    partition_id INTEGER NOT NULL REFERENCES partitions (id),
    name TEXT NOT NULL,
    written_us INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (partition_id, name)
) STRICT;

CREATE TABLE leases (
    partition_id INTEGER NOT NULL REFERENCES partitions (id),
    name TEXT NOT NULL,
    holder TEXT NOT NULL,
    expires_us INTEGER NOT NULL,
    PRIMARY KEY (partition_id, name)
) STRICT, WITHOUT ROWID;

-- Erasures after which free pages and the log were not yet cleaned.
CREATE TABLE uncleaned (
    id INTEGER PRIMARY KEY AUTOINCREMENT
) STRICT;
