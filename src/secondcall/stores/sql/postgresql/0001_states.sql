-- {schema} is the store's schema. Every table begins with the user's scope, tenant_id and user_id, and
-- every statement on it names both, so that it can be sharded by user. An id over 200 bytes stands in a
-- key shortened (see _fold); whole_… then hold it as it is. in_session 0: user-wide, session_id is then
-- empty.

-- Who was let in, and under which epoch. A save locks its user's row against erasure.
CREATE TABLE {schema}.users (
    tenant_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    epoch bytea NOT NULL,
    admitted_us bigint NOT NULL,
    PRIMARY KEY (tenant_id, user_id)
);

-- What is true now. A deleted state keeps its row without a body, so that its versions go on counting.
-- held_until_us: until when a due timer is some holder's. Room is left in the pages, so that a save
-- need not touch the indexes.
CREATE TABLE {schema}.states (
    tenant_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    in_session smallint NOT NULL CHECK (in_session IN (0, 1)),
    session_id text COLLATE "C" NOT NULL CHECK (in_session = 1 OR session_id = ''),
    version bigint NOT NULL CHECK (version >= 1),
    schema bigint NOT NULL,
    updated_us bigint NOT NULL,
    updated_by text NOT NULL,
    expires_us bigint,
    due_us bigint,
    holder text,
    held_until_us bigint,
    whole_user_id text COLLATE "C",
    whole_session_id text COLLATE "C",
    body bytea,
    PRIMARY KEY (tenant_id, user_id, in_session, session_id)
) WITH (fillfactor = 80);

CREATE INDEX states_due ON {schema}.states (tenant_id, due_us) WHERE due_us IS NOT NULL;

-- One row for each version, written with it. A deletion has no body.
CREATE TABLE {schema}.state_history (
    tenant_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    in_session smallint NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    schema bigint NOT NULL,
    at_us bigint NOT NULL,
    by text NOT NULL,
    summary bytea NOT NULL,
    body bytea,
    PRIMARY KEY (tenant_id, user_id, in_session, session_id, version)
);

-- Marks of erased epochs. They name nobody, so they have no scope; on a sharded database this is a
-- reference table.
CREATE TABLE {schema}.erased (
    mark bytea PRIMARY KEY
);
