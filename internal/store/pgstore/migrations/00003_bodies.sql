-- +goose NO TRANSACTION

-- +goose Up

-- What the sweeper of bodies goes by: only results whose bodies go before their records have
-- an entry. It is built while daemons write; one that was left half built is built anew.
DROP INDEX CONCURRENTLY IF EXISTS idemd.reservations_bodies;
CREATE INDEX CONCURRENTLY reservations_bodies ON idemd.reservations (body_expires_at) WHERE body_expires_at IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS idemd.reservations_bodies;
