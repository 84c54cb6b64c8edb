package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/clients/go/messaging/relay"
)

// A process of its own, which is this test's program again: an owner that adds events, or
// a relay. It says when it has reached the step that it was asked to stop at.
const (
	childVariable  = "OUTBOX_TEST_CHILD" // the role
	dsnVariable    = "OUTBOX_TEST_DSN"
	orderVariable  = "OUTBOX_TEST_ORDER"
	brokerVariable = "OUTBOX_TEST_BROKER" // its URL
	stepVariable   = "OUTBOX_TEST_STEP"
	claimVariable  = "OUTBOX_TEST_CLAIM" // default: childClaim
)

// The claims of relays that are killed or stopped.
const (
	childClaim       = time.Second
	childSendTimeout = 300 * time.Millisecond
)

type process struct {
	cmd *exec.Cmd
	in  *bufio.Writer
	out *bufio.Reader
}

func (h *house) child(role, step, broker string, environ ...string) *process {
	h.Helper()
	cmd := exec.CommandContext(h.ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+role, dsnVariable+"="+h.dsn, orderVariable+"="+strconv.Itoa(int(h.config.Order)),
		stepVariable+"="+step, brokerVariable+"="+broker)
	cmd.Env = append(cmd.Env, environ...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		h.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	p := &process{cmd, bufio.NewWriter(in), bufio.NewReader(out)}
	h.Cleanup(p.kill)
	return p
}

// says waits for a line.
func (h *house) says(p *process, want string) {
	h.Helper()
	line, err := p.out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		h.Fatalf("the child says %q (%v), not %q", line, err, want)
	}
}

func (p *process) tell(line string) {
	_, _ = p.in.WriteString(line + "\n")
	_ = p.in.Flush()
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// serve makes the house's broker one that processes can reach.
func (h *house) serve() (url string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		m := message.NewMessage(r.Header.Get("Id"), body.Bytes())
		m.Metadata[outbox.AggregateIDHeader] = r.Header.Get("Aggregate")
		if err := h.broker.Publish("", m); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	h.Cleanup(server.Close)
	return server.URL
}

// remote publishes to a served broker.
type remote struct {
	url  string
	stop *stopper
}

func (r *remote) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		r.stop.at("before publishing " + string(m.Payload))
		request, err := http.NewRequest(http.MethodPost, r.url, bytes.NewReader(m.Payload))
		if err != nil {
			return err
		}
		request.Header.Set("Id", m.UUID)
		request.Header.Set("Aggregate", m.Metadata[outbox.AggregateIDHeader])
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("the broker answers %d", answer.StatusCode)
		}
		r.stop.at("after publishing " + string(m.Payload))
	}
	return nil
}

func (*remote) Close() error { return nil }

// stopper stops a child at its step: it says so and waits for a line.
type stopper struct {
	step    string
	once    sync.Once
	reached atomic.Bool
}

func (s *stopper) at(step string) {
	if step != s.step {
		return
	}
	s.once.Do(func() {
		s.reached.Store(true)
		fmt.Println("reached")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	})
}

// The statements of a relay are the steps before and after: told by what is in them.
var (
	_ pgx.QueryTracer = (*stopper)(nil)
	_ pgx.BatchTracer = (*stopper)(nil)
)

type statementKey struct{}

func (s *stopper) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return s.begins(ctx, data.SQL)
}

func (s *stopper) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	s.ends(ctx)
}

func (s *stopper) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var all strings.Builder
	for _, q := range data.Batch.QueuedQueries {
		all.WriteString(q.SQL)
	}
	return s.begins(ctx, all.String())
}

func (s *stopper) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s *stopper) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	s.ends(ctx)
}

func (s *stopper) begins(ctx context.Context, sql string) context.Context {
	name := ""
	switch {
	case strings.Contains(sql, "pg_try_advisory_xact_lock"):
		name = "the lock"
	case strings.Contains(sql, "SET claimed_by = $1"):
		name = "the claim"
	case strings.Contains(sql, "sent_at = clock_timestamp()"):
		name = "the mark"
	}
	s.at("before " + name)
	return context.WithValue(ctx, statementKey{}, name)
}

func (s *stopper) ends(ctx context.Context) {
	if name, _ := ctx.Value(statementKey{}).(string); name != "" {
		s.at("after " + name)
		if name == "the mark" && s.reached.Load() {
			fmt.Println("marked")
		}
	}
}

// child is the process's main.
func child() int {
	order, _ := strconv.Atoi(os.Getenv(orderVariable))
	config := outbox.Config{Schema: "shop", Order: outbox.Order(order)}
	stop := &stopper{step: os.Getenv(stepVariable)}
	run := childRelay
	if os.Getenv(childVariable) == "owner" {
		run = childOwner
	}
	if err := run(context.Background(), config, stop); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childOwner(ctx context.Context, config outbox.Config, stop *stopper) error {
	o, err := outbox.New(config)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, os.Getenv(dsnVariable))
	if err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	stop.at("before the insert")
	if err := o.Add(ctx, tx, work()...); err != nil {
		return err
	}
	stop.at("after the insert")
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	stop.at("after the commit")
	return nil
}

func childRelay(ctx context.Context, config outbox.Config, stop *stopper) error {
	postgres, err := pgxpool.ParseConfig(os.Getenv(dsnVariable))
	if err != nil {
		return err
	}
	postgres.ConnConfig.Tracer = stop
	claim := childClaim
	if text := os.Getenv(claimVariable); text != "" {
		if claim, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	r, err := relay.New(relay.Config{
		Outbox: config, Postgres: postgres, Publisher: &remote{os.Getenv(brokerVariable), stop}, Poll: shortest,
		Claim: claim, SendTimeout: childSendTimeout, Workers: 1,
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// work is what there is to send: five events each of two aggregates, a0 b0 a1 b1 …
func work() (all []outbox.Event) {
	for n := range 5 {
		for _, a := range []string{"a", "b"} {
			e := about(a, n)
			e.Payload = fmt.Append(nil, a, n)
			all = append(all, e)
		}
	}
	return all
}
