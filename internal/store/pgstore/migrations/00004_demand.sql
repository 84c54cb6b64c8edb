-- +goose Up

-- What each daemon was lately asked for, of the quotas of tenants and namespaces: by it they
-- share what the quotas allow. It is written anew every second, so it needs no log, and
-- nothing is lost with it. Without tenant and namespace: the daemon is there.
CREATE UNLOGGED TABLE idemd.demand (
    daemon    text COLLATE "C" NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL, -- empty = of the tenant
    asked     double precision NOT NULL, -- Reserves a second
    at        bigint NOT NULL,           -- microseconds since 1970
    CONSTRAINT demand_pkey PRIMARY KEY (daemon, tenant, namespace)
) WITH (
    -- Each row is updated in its place, and its dead versions go at once.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);

-- +goose Down
DROP TABLE idemd.demand;
