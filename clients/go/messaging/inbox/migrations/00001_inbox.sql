-- +goose Up
CREATE TABLE {{.}} (
    consumer text COLLATE "C" NOT NULL,
    -- 'message' or 'business': what the id is of.
    kind     text COLLATE "C" NOT NULL CHECK (kind IN ('message', 'business')),
    id       text COLLATE "C" NOT NULL,
    -- Empty where there is none; null while the transaction that writes the row is in the
    -- middle of it, which nobody else sees.
    result   bytea,
    done_at  timestamptz NOT NULL,
    PRIMARY KEY (consumer, kind, id)
);
CREATE INDEX {{.Index "done_at"}} ON {{.}} (done_at);

-- How often a message has failed.
CREATE TABLE {{.Beside "failures"}} (
    consumer   text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    attempts   integer NOT NULL,
    last_error text NOT NULL,
    failed_at  timestamptz NOT NULL,
    PRIMARY KEY (consumer, id)
);
CREATE INDEX {{.Index "failures_failed_at"}} ON {{.Beside "failures"}} (failed_at);

-- +goose Down
DROP TABLE {{.Beside "failures"}};
DROP TABLE {{.}};
