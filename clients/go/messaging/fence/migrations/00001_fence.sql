-- +goose Up
CREATE TABLE {{.}} (
    tenant       text COLLATE "C" NOT NULL,
    namespace    text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    -- With the address: which operation this is.
    reserved_at  timestamptz NOT NULL,
    -- The attempt that committed.
    attempt      integer NOT NULL,
    fence        bigint NOT NULL,
    -- A serialised idemd.v1.Result.
    result       bytea NOT NULL,
    committed_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, namespace, key)
);
CREATE INDEX {{.Index "committed_at"}} ON {{.}} (committed_at);

-- +goose Down
DROP TABLE {{.}};
