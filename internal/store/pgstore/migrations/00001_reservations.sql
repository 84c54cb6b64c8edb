-- +goose Up

-- One row is one reservation (reservation.Record).
--
-- Times and durations are whole microseconds in bigint, times since 1970: exactly what
-- the state machine computes with, at any session's DateStyle, TimeZone or exec mode.
-- For reading: SELECT to_timestamp(expires_at / 1e6). NULL means "not set".
--
-- Keys are compared byte for byte, whatever the database's collation is. The defaults
-- are those of a first attempt under way.
CREATE TABLE idemd.reservations (
    tenant              text COLLATE "C" NOT NULL,
    namespace           text COLLATE "C" NOT NULL,
    key                 text COLLATE "C" NOT NULL,
    -- Counts the writes of this row. Each write demands the revision that it read;
    -- version can't serve for that: refused outcomes of strangers are stored without
    -- counting it up.
    revision            bigint NOT NULL DEFAULT 1,
    version             bigint NOT NULL,
    fence               bigint NOT NULL,
    retention           bigint NOT NULL,
    reserved_at         bigint NOT NULL,
    lease_expires_at    bigint NOT NULL,
    lease_cap_at        bigint NOT NULL,
    -- An unsigned number, kept with its bits: what is 2^63 or more is negative here.
    -- It is compared in the daemon only.
    checkpoint_sequence bigint NOT NULL DEFAULT 0,
    finished_at         bigint,
    expires_at          bigint,
    retry_at            bigint,
    unknown_since       bigint,
    attempt             integer NOT NULL DEFAULT 1,
    attempts_allowed    integer NOT NULL,
    -- 1 PROCESSING, 2 SUCCEEDED, 3 FAILED_FINAL, 4 FAILED_RETRYABLE, 5 UNKNOWN
    state               smallint NOT NULL DEFAULT 1,
    on_lapse            smallint NOT NULL,
    told                smallint NOT NULL DEFAULT 0,
    took_over           boolean NOT NULL DEFAULT false,
    judged              boolean NOT NULL DEFAULT false,
    scheme              text NOT NULL,
    digest              bytea NOT NULL,
    token               bytea NOT NULL,
    owner               text NOT NULL,
    policy_version      text NOT NULL,
    spent               bytea,
    checkpoint          bytea,
    result              bytea,
    history             bytea,
    CONSTRAINT reservations_pkey PRIMARY KEY (tenant, namespace, key)
) WITH (
    -- Room for the second version of a row beside the first.
    fillfactor = 70,
    -- Every Complete leaves a dead version of its row, and every sweep a dead row. By
    -- default autovacuum waits until a fifth of the table is dead: ten million rows would
    -- carry two million dead ones, with their entries in three indexes.
    autovacuum_vacuum_scale_factor = 0.05,
    -- At its default speed, ten pages dirtied every 2 ms, it cleans about as much as one
    -- daemon under full load leaves behind.
    autovacuum_vacuum_cost_limit = 1000,
    toast.autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_cost_limit = 1000
);

-- Results are replayed byte for byte; most large ones are compressed already.
ALTER TABLE idemd.reservations ALTER COLUMN result SET STORAGE EXTERNAL;

-- The two indexes below change when a reservation is completed, so that this update
-- can't be a HOT one. On a small table, in memory, the difference was within the noise of
-- the measurement; without them the sweeper, the statistics and the list of what is open
-- would scan the table. To be measured again at tens of millions of rows.

-- What the sweeper goes by.
CREATE INDEX reservations_expiry ON idemd.reservations (expires_at) WHERE expires_at IS NOT NULL;

-- What is in progress or unknown: listed by operators, counted by the statistics.
CREATE INDEX reservations_open ON idemd.reservations (tenant, namespace, key) WHERE expires_at IS NULL;

-- The store's clock, in microseconds since 1970: the only place where time comes from.
-- +goose StatementBegin
CREATE FUNCTION idemd.clock() RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;
-- +goose StatementEnd

-- Fails a transaction whose time of decision lies too far back, because it has waited
-- since.
-- +goose StatementBegin
CREATE FUNCTION idemd.demand_recent(decided_at bigint, tolerance bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    IF idemd.clock() - decided_at > tolerance THEN
        RAISE EXCEPTION 'decided too long ago' USING ERRCODE = 'IDEM1';
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION idemd.demand_recent(bigint, bigint);
DROP FUNCTION idemd.clock();
DROP TABLE idemd.reservations;
