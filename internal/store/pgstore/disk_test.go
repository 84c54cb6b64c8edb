package pgstore

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/pgtest"
)

// fillExpired inserts rows of finished reservations whose retention is over.
const fillExpired = `INSERT INTO idemd.reservations (tenant, namespace, key, version, fence, retention, reserved_at, lease_expires_at,
    lease_cap_at, attempts_allowed, on_lapse, scheme, digest, token, owner, policy_version, state, told, finished_at, expires_at)
SELECT 'acme', 'payments', gen_random_uuid()::text, i, i, 1000000, 1, 1, 1, 20, 1, 'json-v1', sha256(i::text::bytea),
    substring(sha256(i::text::bytea) FROM 1 FOR 16), 'pod-1', 'v1', 2, 1, i, idemd.clock() - 20000 + i FROM generate_series(1, 20000) AS i`

func TestTheDiskLevelsOffOverCycles(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("autovacuum_naptime=1s"))
	database := server.Database(t, "")
	s := openStore(t, Options{DSN: server.DSN(database), Migrate: true})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	number := func(statement string) int {
		t.Helper()
		rows, err := server.Exec(database, statement)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(rows[0][0])
		return n
	}
	var sizes []int
	full := 0 // with the rows of one cycle
	for range 5 {
		must(t, server, database, fillExpired)
		if full == 0 {
			full = number("SELECT pg_total_relation_size('idemd.reservations')")
		}
		for more := true; more; {
			swept, err := s.Sweep(ctx, 500)
			if err != nil {
				t.Fatal(err)
			}
			more = swept.More
		}
		if left := number("SELECT count(*) FROM idemd.reservations"); left != 0 {
			t.Fatalf("%d expired rows are left", left)
		}
		// Autovacuum cleans up by itself: nobody runs VACUUM.
		for number("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'reservations'") > 2000 {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal("autovacuum does not come")
			}
		}
		sizes = append(sizes, number("SELECT pg_total_relation_size('idemd.reservations')"))
	}
	t.Logf("bytes with the rows of one cycle: %d; after each cycle: %v", full, sizes)
	// Statistics come late, so that a cycle may begin before the rows of the last one are
	// cleaned up; those of three are never there together.
	if float64(max(sizes[3], sizes[4])) > 2.5*float64(full) {
		t.Errorf("the disk grows: bytes with the rows of one cycle are %d, after each cycle %v", full, sizes)
	}
}
