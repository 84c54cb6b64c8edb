-- +goose Up

-- The oldest version of this schema whose programs still work with it. Such a program may
-- be started beside newer ones: as in a deployment that goes one daemon at a time, or that
-- is taken back. A migration that takes something away replaces this function.
-- +goose StatementBegin
CREATE FUNCTION idemd.oldest_program() RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT 1::bigint $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION idemd.oldest_program();
