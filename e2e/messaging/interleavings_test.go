package messaging

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/fence"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Two owners, A who was granted first and B who takes over, in every order of their steps.
//
//	A: Guard, effect, COMMIT, Complete      (granted before the first step)
//	B: Grant (after the lapse), Guard, effect, COMMIT, Complete
//
// An A whose COMMIT's reply is lost guards again before Complete; one that dies leaves its
// connection closed where it stood. A schedule is the owners whose turn it is, as letters.
type ending struct {
	name  string
	steps string // of A: g(uard) e(ffect) c(ommit) l(ost commit) r(einsurance: Guard again) d(one: Complete) x (dies)
}

func endings() []ending {
	return []ending{
		{"lives", "gecd"},
		{"loses the reply to COMMIT", "gelrd"},
		{"dies before Guard", "x"},
		{"dies before the effect", "gx"},
		{"dies before COMMIT", "gex"},
		{"dies before Complete", "gecx"},
		{"dies with the reply to COMMIT", "gelx"},
	}
}

const stepsOfB = "tgecd" // t(akes over)

// schedules are all orders of A's and B's steps that can be: who waits in Guard for the
// other's transaction has no turn until that ends, unless it is to die.
func schedules(stepsOfA string) (all []string) {
	var extend func(done string, m model)
	extend = func(done string, m model) {
		if m[0].steps == "" && m[1].steps == "" {
			all = append(all, done)
		}
		for who, letter := range "AB" {
			if p := m[who]; p.steps != "" && (!p.waits || p.steps[0] == 'x') {
				extend(done+string(letter), m.after(who))
			}
		}
	}
	extend("", model{{steps: stepsOfA}, {steps: stepsOfB}})
	return all
}

// model is where A and B stand, as far as it decides what each can do next.
type model [2]position

type position struct {
	steps string
	// holds: it is in its transaction, behind Guard. waits: it is in Guard, for the other.
	holds, waits bool
	// committed: its effect is. told: its Complete is done.
	committed, told bool
}

// found: it was given the other's result. What is left is to tell it.
func (p *position) found() { p.steps = strings.TrimLeft(p.steps, "ecl") }

// after is the model after the next step of one of them.
func (m model) after(who int) model {
	p, other := &m[who], &m[1-who]
	next := p.steps[0]
	p.steps = p.steps[1:]
	switch next {
	case 't':
		if other.told {
			p.steps = "" // it is answered
		}
	case 'g', 'r':
		switch {
		case other.holds:
			p.waits = true
		case other.committed || p.committed:
			p.found()
		default:
			p.holds = true
		}
	case 'd':
		p.told = true
	case 'c', 'l', 'x':
		p.committed = p.committed || next != 'x'
		p.holds, p.waits = false, false
		if other.waits {
			other.waits = false
			if other.holds = !p.committed; !other.holds {
				other.found()
			}
		}
	}
	return m
}

func TestOfTwoOwnersOneCommitsInEveryOrderOfTheirSteps(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		server := house.Postgres.Server(t)
		pool := database(t, server.DSN(server.Database(t, "")))
		table, err := fence.New("", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Migrate(harness.Bounded(t), pool); err != nil {
			t.Fatal(err)
		}
		exec(t, pool, "CREATE TABLE effects (key text, owner text)")
		r := race{
			table: table, pool: pool, postgres: server.Address(), dsn: pool.Config().ConnString(),
			daemon: idemdv1.NewIdempotencyServiceClient(harness.Dial(t, house.Serve(t, s).GRPC)),
		}
		var all sync.WaitGroup
		slots := make(chan struct{}, 16)
		total := 0
		for i, e := range endings() {
			orders := schedules(e.steps)
			total += len(orders)
			for j, order := range orders {
				all.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					if err := r.run(fmt.Sprintf("k-%d-%d", i, j), e.steps, order); err != nil {
						t.Errorf("A %s, %s: %v", e.name, order, err)
					}
				})
			}
		}
		all.Wait()
		t.Logf("%d orders", total)
	})
}

// race is what the owners of all orders share.
type race struct {
	table         *fence.Table
	pool          *pgxpool.Pool
	postgres, dsn string
	daemon        idemdv1.IdempotencyServiceClient
}

const lease = 100 * time.Millisecond

// owner is A or B.
type owner struct {
	race
	name, key string
	other     *owner
	token     []byte
	grant     *idem.Grant
	proxy     *fault.TCP
	conn      *pgx.Conn
	tx        pgx.Tx
	// guarded is how a Guard ends that waits; nil = none does.
	guarded chan error
	// found is what Guard found committed.
	found *idem.Result
	// answer is what the owner tells its caller.
	answer *idem.Result
	steps  string
	dead   bool
}

func (r race) run(key, stepsOfA, order string) error {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	a := &owner{race: r, name: "A", key: key, steps: stepsOfA}
	b := &owner{race: r, name: "B", key: key, steps: stepsOfB}
	a.other, b.other = b, a
	defer a.close()
	defer b.close()
	for _, o := range []*owner{a, b} {
		if err := o.connect(ctx); err != nil {
			return err
		}
	}
	if err := a.takeOver(ctx); err != nil { // nobody: it is the first
		return err
	}
	owners, expected := []*owner{a, b}, model{{steps: stepsOfA}, {steps: stepsOfB}}
	for _, turn := range order {
		who := int(turn - 'A')
		expected = expected.after(who)
		if err := owners[who].step(ctx); err != nil {
			return fmt.Errorf("%s: %w", owners[who].name, err)
		}
		if err := owners[1-who].resume(ctx); err != nil {
			return fmt.Errorf("%s: %w", owners[1-who].name, err)
		}
		for i, o := range owners {
			if o.steps != expected[i].steps || (o.guarded != nil) != expected[i].waits {
				return fmt.Errorf("%s waits in Guard: %v, has left: %q; expected is %+v", o.name, o.guarded != nil, o.steps, expected[i])
			}
		}
	}
	return r.judge(ctx, a, b)
}

// step does the owner's next one.
func (o *owner) step(ctx context.Context) error {
	next := o.steps[0]
	o.steps = o.steps[1:]
	switch next {
	case 't':
		return o.takeOver(ctx)
	case 'g', 'r':
		return o.guard(ctx)
	case 'e':
		if _, err := o.tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2)", o.key, o.name); err != nil {
			return err
		}
		o.answer = &idem.Result{Status: 201, Body: []byte("by " + o.name)}
		return o.table.Store(ctx, o.tx, o.grant, o.answer)
	case 'c':
		return o.tx.Commit(ctx)
	case 'l':
		return o.loseCommit(ctx)
	case 'x':
		return o.die(ctx)
	}
	return o.complete(ctx)
}

func (o *owner) connect(ctx context.Context) (err error) {
	config, err := pgx.ParseConfig(o.dsn)
	if err != nil {
		return err
	}
	if o.proxy, err = fault.NewTCP(o.postgres); err != nil {
		return err
	}
	if _, err := fmt.Sscanf(strings.ReplaceAll(o.proxy.Addr(), ":", " "), "%s %d", &config.Host, &config.Port); err != nil {
		return err
	}
	o.conn, err = pgx.ConnectConfig(ctx, config)
	return err
}

// takeOver asks until it is granted, or answered.
func (o *owner) takeOver(ctx context.Context) error {
	o.token = make([]byte, 16)
	_, _ = rand.Read(o.token)
	answer, err := o.daemon.Reserve(ctx, &idemdv1.ReserveRequest{
		Tenant: "acme", Key: o.key, OwnerToken: o.token, Lease: durationpb.New(lease), Wait: durationpb.New(20 * time.Second),
		OnLapse:     idemdv1.LapsePolicy_LAPSE_POLICY_RERUN,
		Fingerprint: &idemdv1.Fingerprint{Scheme: "test-v1", Digest: make([]byte, 32)},
	})
	if err != nil {
		return err
	}
	if replay := answer.GetReplay(); replay != nil {
		o.answer, o.steps = replay.GetResult(), ""
		return nil
	}
	owned := answer.GetOwned()
	if owned == nil {
		return fmt.Errorf("not granted: %v", answer)
	}
	o.grant = &idem.Grant{
		Tenant: "acme", Key: o.key, Attempt: owned.GetAttempt(), Fence: owned.GetFence(), ReservedAt: owned.GetReservedAt().AsTime(),
	}
	return nil
}

// guard begins and guards. Where it has to wait, the step is over as soon as it does.
func (o *owner) guard(ctx context.Context) (err error) {
	if o.tx, err = o.conn.Begin(ctx); err != nil {
		return err
	}
	guarded := make(chan error, 1)
	go func() {
		var err error
		o.found, err = o.table.Guard(ctx, o.tx, o.grant)
		guarded <- err
	}()
	for {
		select {
		case err := <-guarded:
			return o.behindGuard(ctx, err)
		case <-time.After(time.Millisecond):
		}
		if waits, err := o.waits(ctx); err != nil {
			return err
		} else if waits {
			o.guarded = guarded
			return nil
		}
	}
}

// resume ends a Guard that waits no longer.
func (o *owner) resume(ctx context.Context) error {
	if o.guarded == nil {
		return nil
	}
	for {
		select {
		case err := <-o.guarded:
			o.guarded = nil
			return o.behindGuard(ctx, err)
		case <-time.After(time.Millisecond):
		}
		if waits, err := o.waits(ctx); waits || err != nil {
			return err
		}
	}
}

// waits: the other one, and no third, is what it waits for. (Those of other orders can hold
// it up for a moment, at the end of the table.)
func (o *owner) waits(ctx context.Context) (is bool, err error) {
	err = o.pool.QueryRow(ctx, "SELECT $2 = ANY (pg_blocking_pids($1))", o.conn.PgConn().PID(), o.other.conn.PgConn().PID()).Scan(&is)
	return is, err
}

// behindGuard: what has been committed is the answer, and nothing is left but to tell it.
func (o *owner) behindGuard(ctx context.Context, err error) error {
	if err != nil || o.found == nil {
		return err
	}
	o.answer = o.found
	o.steps = strings.TrimLeft(o.steps, "ecl")
	return o.tx.Rollback(ctx)
}

// die closes the connection where it stands. Its session ends as soon as the database
// notices, which is not before it has what it waits for.
func (o *owner) die(ctx context.Context) error {
	o.dead = true
	_ = o.conn.PgConn().Conn().Close()
	if o.guarded != nil {
		<-o.guarded
		o.guarded = nil
		return nil
	}
	for there := true; there; {
		if err := o.pool.QueryRow(ctx, "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1", o.conn.PgConn().PID()).Scan(&there); err != nil {
			return err
		}
	}
	return nil
}

// loseCommit commits, hears nothing of it, and connects anew.
func (o *owner) loseCommit(ctx context.Context) error {
	lost := o.proxy.LoseAnswer([]byte("commit"), []byte{'Z', 0, 0, 0, 5, 'I'})
	if err := o.tx.Commit(ctx); err == nil {
		return fmt.Errorf("the reply to COMMIT is there")
	}
	select {
	case <-lost:
	case <-ctx.Done():
		return ctx.Err()
	}
	o.proxy.Close()
	o.answer = nil
	return o.connect(ctx)
}

// complete tells the daemon. Who was taken over is refused, and answers all the same.
func (o *owner) complete(ctx context.Context) error {
	_, err := o.daemon.Complete(ctx, &idemdv1.CompleteRequest{Tenant: "acme", Key: o.key, OwnerToken: o.token, Result: o.answer})
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetReason() == "STALE_TOKEN" && o.name == "A" {
			return nil
		}
	}
	return err
}

func (o *owner) close() {
	if o.conn != nil {
		_ = o.conn.Close(context.Background())
	}
	if o.proxy != nil {
		o.proxy.Close()
	}
}

// judge: one effect, one answer for all who live, and the daemon's is it.
func (r race) judge(ctx context.Context, a, b *owner) error {
	var by []string
	rows, err := r.pool.Query(ctx, "SELECT owner FROM effects WHERE key = $1", a.key)
	if err != nil {
		return err
	}
	if by, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(by) != 1 {
		return fmt.Errorf("effects by %v, %w", by, err)
	}
	found, err := r.daemon.Lookup(ctx, &idemdv1.LookupRequest{Tenant: "acme", Key: a.key})
	if err != nil {
		return err
	}
	is := found.GetReservation()
	want := &idem.Result{Status: 201, Body: []byte("by " + by[0])}
	answers := []*idem.Result{is.GetResult(), b.answer}
	if !a.dead {
		answers = append(answers, a.answer)
	}
	if is.GetState() != idemdv1.State_STATE_SUCCEEDED || slices.ContainsFunc(answers, func(one *idem.Result) bool { return !proto.Equal(one, want) }) {
		return fmt.Errorf("committed %v; stored is %v; the answers are %v", by, is, answers)
	}
	return nil
}
