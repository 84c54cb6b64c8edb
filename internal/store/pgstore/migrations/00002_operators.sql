-- +goose Up

-- Whoever reads the table for long must not make everybody wait behind this migration: it
-- gives up, and is tried again when the daemon is started again.
SET LOCAL lock_timeout = '5s';

-- Columns of which a daemon from before them knows nothing: it neither reads nor writes
-- them, also where it writes the next life of a key into the row of an earlier one. So what
-- stands in them is believed only if it shows that it belongs to the rest of the row.
ALTER TABLE idemd.reservations
    -- Where the first attempt was traced, as the W3C has it: reserved_at (8 bytes, big
    -- endian), trace id (16), span id (8), flags (1). Of another reserved_at: of another life.
    ADD COLUMN trace bytea,
    -- When an operator had the result removed. Before finished_at: of an earlier result.
    ADD COLUMN erased_at bigint,
    -- From when on the result is shown without its body, for the sweeper to find. The result
    -- itself says how long its body is shown: that is what is gone by.
    ADD COLUMN body_expires_at bigint;

-- The acts of operators, each written with the change that it is about. Nothing updates or
-- deletes them; ids have no gaps.
CREATE TABLE idemd.audit (
    id             bigint NOT NULL,
    at             bigint NOT NULL, -- microseconds since 1970
    actor          text NOT NULL,
    act            smallint NOT NULL, -- 1 RESOLVE, 2 ERASE
    tenant         text COLLATE "C" NOT NULL,
    namespace      text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    state_before   smallint NOT NULL, -- as in reservations.state, as it was shown
    version_before bigint NOT NULL,
    state_after    smallint NOT NULL,
    version_after  bigint NOT NULL,
    verdict        smallint NOT NULL, -- 0 none, 1 SUCCEEDED, 2 FAILED_FINAL, 3 NOT_EXECUTED
    reason         text NOT NULL,
    evidence       text NOT NULL,
    result_digest  bytea,
    CONSTRAINT audit_pkey PRIMARY KEY (id)
);

-- The last id given. Who holds this row writes the next entries: so ids come in the order of
-- the commits, and a reader that has seen one has seen all before it.
CREATE TABLE idemd.audit_head (
    one  boolean NOT NULL DEFAULT true CONSTRAINT audit_head_pkey PRIMARY KEY CHECK (one),
    last bigint NOT NULL
);
INSERT INTO idemd.audit_head (last) VALUES (0);

-- +goose Down
DROP TABLE idemd.audit_head;
DROP TABLE idemd.audit;
ALTER TABLE idemd.reservations DROP COLUMN trace, DROP COLUMN erased_at, DROP COLUMN body_expires_at;
