package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/idemd/idemd/internal/pgtest"
)

// bench is everything that runs while it is measured.
type bench struct {
	plan     plan
	profiles string // a directory; empty = none
	dir      string // of the embedded store
	database *pgtest.Server
	children map[string]*child
	samples  map[setting][]sample
}

// run measures every setting in each round, one after the other.
func run(ctx context.Context, p plan, profiles string) (*report, error) {
	b := &bench{plan: p, profiles: profiles, children: make(map[string]*child), samples: make(map[setting][]sample)}
	defer b.stop()
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	var err error
	found := &report{When: time.Now().UTC().Truncate(time.Second), Plan: p, Machine: describeMachine(b.dir)}
	found.Machine.Postgres = b.ask("SHOW server_version")
	if profiles != "" {
		finish, err := startProfile(filepath.Join(profiles, "client.pprof"))
		if err != nil {
			return nil, err
		}
		defer finish()
	}
	for n := range p.Rounds {
		// Each round begins with a fresh checkpoint, so that none falls to one contender.
		b.ask("CHECKPOINT")
		for _, s := range p.round(n) {
			taken, err := b.sample(ctx, s)
			if err != nil {
				return nil, fmt.Errorf("%v, %d callers: %w", s, s.Callers, err)
			}
			b.samples[s] = append(b.samples[s], taken)
			_, _ = fmt.Fprintf(os.Stderr, "round %d/%d: %3d callers, %v: %.0f cycles/s\n", n+1, p.Rounds, s.Callers, s, taken.Rate)
		}
	}
	found.fill(p, b.samples)
	if p.Waiters > 0 && b.needs(postgres) {
		if found.Waiting, err = b.measureWaiting(ctx); err != nil {
			return nil, err
		}
	}
	if p.Expired > 0 {
		found.Sweeping, err = b.measureSweeping(ctx, found)
	}
	return found, err
}

// start starts every server that the plan needs.
func (b *bench) start(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "idemd-bench-"); err != nil {
		return err
	}
	if b.needs(pgx) || b.needs(postgres) {
		if err := b.startDatabase(); err != nil {
			return err
		}
	}
	environ := map[string]string{echo: "", embedded: dirVariable + "=" + filepath.Join(b.dir, "store"), postgres: dsnVariable + "=" + b.dsn("idemd")}
	for name, assignment := range environ {
		if !b.needs(name) {
			continue
		}
		if b.children[name], err = startChild(ctx, name, b.profiles, assignment); err != nil {
			return err
		}
	}
	return nil
}

// needs tells whether a server is needed.
func (b *bench) needs(server string) bool {
	return slices.ContainsFunc(b.plan.Contenders, func(contender string) bool { return servedBy(contender) == server })
}

// startDatabase starts PostgreSQL with what a small server of its own would have, for all
// contenders alike. Durability is PostgreSQL's default: fsync on.
func (b *bench) startDatabase() (err error) {
	b.database, err = pgtest.New(pgtest.Setting("shared_buffers=256MB"), pgtest.Setting("max_wal_size=2GB"),
		pgtest.Setting("checkpoint_timeout=15min"))
	if err != nil {
		return err
	}
	for _, name := range []string{"idemd", "plain"} {
		if _, err := b.database.Exec("postgres", "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
			return err
		}
	}
	_, err = b.database.Exec("plain", plainSchema)
	return err
}

func (b *bench) dsn(database string) string {
	if b.database == nil {
		return ""
	}
	return b.database.DSN(database)
}

// ask asks PostgreSQL for one value; empty where it does not run.
func (b *bench) ask(statement string) string {
	if b.database == nil {
		return ""
	}
	rows, err := b.database.Exec("postgres", statement)
	if err != nil || len(rows) == 0 || len(rows[0]) == 0 {
		return ""
	}
	return rows[0][0]
}

func (b *bench) stop() {
	for _, c := range b.children {
		if c != nil {
			c.stop()
		}
	}
	if b.database != nil {
		b.database.Remove()
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

func (b *bench) connect(ctx context.Context, s setting) (client, error) {
	if s.Contender == pgx {
		return connectPlain(ctx, b.dsn("plain"), s.Pool)
	}
	return dial(b.children[servedBy(s.Contender)].address, s.Callers, coalesced(s.Contender))
}
