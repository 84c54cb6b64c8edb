package pgstore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// BenchmarkReserveComplete measures cycles of Reserve and Complete on fresh keys: one
// operation is one cycle. Appliers are how many batches are under way at a time.
func BenchmarkReserveComplete(b *testing.B) {
	for _, shape := range []struct{ batch, appliers int }{{1, 1}, {1, 8}, {64, 4}, {128, 2}, {256, 1}, {256, 4}} {
		b.Run(fmt.Sprintf("batch=%d/appliers=%d", shape.batch, shape.appliers), func(b *testing.B) {
			server, database := postgres.Server(b), postgres.database(b)
			s := openStore(b, Options{DSN: server.DSN(database)})
			var next atomic.Int64
			b.ResetTimer()
			together(shape.appliers, func(int) {
				for {
					start := next.Add(int64(shape.batch)) - int64(shape.batch)
					if start >= int64(b.N) {
						return
					}
					cycle(b, s, int(start), min(shape.batch, b.N-int(start)))
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}

func cycle(b *testing.B, s *Store, start, size int) {
	reserves, completes := make([]reservation.Command, size), make([]reservation.Command, size)
	for i := range size {
		a := benchmarkAddress(start + i)
		reserves[i], completes[i] = storetest.Reserve(a, i), storetest.Complete(a, i, "done")
	}
	for _, outcome := range s.Apply(context.Background(), reserves) {
		if _, granted := outcome.(*reservation.Owned); !granted {
			b.Errorf("got %T %v", outcome, outcome)
		}
	}
	for _, outcome := range s.Apply(context.Background(), completes) {
		if _, recorded := outcome.(*reservation.Recorded); !recorded {
			b.Errorf("got %T %v", outcome, outcome)
		}
	}
}

func benchmarkAddress(i int) reservation.Address {
	// Keys in the wild are random: these are spread over the index.
	return reservation.Address{Tenant: "acme", Namespace: "payments", Key: fmt.Sprintf("order-%016x", uint64(i)*0x9e3779b97f4a7c15)}
}

// BenchmarkPlainPgx is what an application does without a daemon: an insert and an
// update of its own, each committed by itself.
func BenchmarkPlainPgx(b *testing.B) {
	for _, conns := range []int{1, 8, 32, 64} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			pool := plainPool(b, conns)
			var next atomic.Int64
			b.ResetTimer()
			together(conns, func(int) {
				for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
					plainCycle(b, pool, int(i))
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}

func plainPool(b *testing.B, conns int) *pgxpool.Pool {
	server := postgres.Server(b)
	database := server.Database(b, "")
	must(b, server, database, `CREATE TABLE keys (tenant text, key text, token bytea NOT NULL, state smallint NOT NULL,
		locked_until timestamptz NOT NULL, result bytea, expires_at timestamptz, PRIMARY KEY (tenant, key))`)
	config, err := pgxpool.ParseConfig(server.DSN(database))
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns, config.MinConns = int32(conns), int32(conns)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	return pool
}

func plainCycle(b *testing.B, pool *pgxpool.Pool, i int) {
	ctx, a, token := context.Background(), benchmarkAddress(i), storetest.Token(i)
	tag, err := pool.Exec(ctx, `INSERT INTO keys (tenant, key, token, state, locked_until)
		VALUES ($1, $2, $3, 1, clock_timestamp() + interval '30 s') ON CONFLICT DO NOTHING`, a.Tenant, a.Key, []byte(token))
	if err != nil || tag.RowsAffected() != 1 {
		b.Errorf("insert: %v %v", tag, err)
	}
	tag, err = pool.Exec(ctx, `UPDATE keys SET state = 2, result = $4, expires_at = clock_timestamp() + interval '7 d'
		WHERE tenant = $1 AND key = $2 AND token = $3 AND state = 1`, a.Tenant, a.Key, []byte(token), storetest.Answer("done").Body)
	if err != nil || tag.RowsAffected() != 1 {
		b.Errorf("update: %v %v", tag, err)
	}
}

// together runs n workers and waits for them.
func together(n int, worker func(i int)) {
	var workers sync.WaitGroup
	for i := range n {
		workers.Go(func() { worker(i) })
	}
	workers.Wait()
}

// BenchmarkUnchanged measures what waiting costs: one operation is one reservation that
// is as it was last seen. The database's CPU time is what counts.
func BenchmarkUnchanged(b *testing.B) {
	const keys = 10_000
	server, database := postgres.Server(b), postgres.database(b)
	s := openStore(b, Options{DSN: server.DSN(database)})
	var wanted []store.Wanted
	for start := 0; start < keys; start += store.MaxBatch {
		var reserves []reservation.Command
		for i := range store.MaxBatch {
			a := benchmarkAddress(start + i)
			reserves = append(reserves, storetest.Reserve(a, i))
			wanted = append(wanted, store.Wanted{Address: a})
		}
		s.Apply(context.Background(), reserves)
	}
	look := func(wanted []store.Wanted) []store.Found {
		snapshot, err := s.Get(context.Background(), wanted)
		if err != nil {
			b.Fatal(err)
		}
		return snapshot.Found
	}
	for start := 0; start < keys; start += store.MaxBatch {
		for i, found := range look(wanted[start : start+store.MaxBatch]) {
			wanted[start+i].Seen = found.Seen
		}
	}
	before := cpuOf(server.Processes())
	b.ResetTimer()
	for i := 0; i < b.N; i += store.MaxBatch {
		if found := look(wanted[i%keys : i%keys+store.MaxBatch]); len(found) > 0 {
			b.Fatalf("%d of them were read again", len(found))
		}
	}
	b.ReportMetric(float64(cpuOf(server.Processes())-before)/float64(b.N), "database-ns/op")
}

// cpuOf is the CPU time that processes have used, by what Linux tells; elsewhere zero.
func cpuOf(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, ticks := range fields[11:13] {
			n, _ := strconv.Atoi(ticks)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}
