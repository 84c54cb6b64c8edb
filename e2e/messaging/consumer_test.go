package messaging

import (
	"context"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/idemd/idemd/clients/go/messaging/consume"
	"github.com/idemd/idemd/clients/go/messaging/inbox"
	"github.com/idemd/idemd/e2e/harness"
)

// The consumer as a process: where it listens, and where it is killed.
const (
	consumerRole   = "consumer"
	dsnVariable    = "IDEMD_E2E_DSN"
	brokerVariable = "IDEMD_E2E_BROKER"
	topicVariable  = "IDEMD_E2E_TOPIC"
	killVariable   = "IDEMD_E2E_KILL" // "commit/after"; empty = nowhere
)

// steps are what a consumer does, one after the other; at one of them it kills itself.
type steps struct{ kill string }

func (s steps) at(point string) {
	if point == s.kill {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (s steps) around(step string, do func() error) error {
	s.at(step + "/before")
	err := do()
	s.at(step + "/after")
	return err
}

// steppedDB is a database whose transactions go step by step.
type steppedDB struct {
	pool *pgxpool.Pool
	steps
}

func (db steppedDB) Begin(ctx context.Context) (tx pgx.Tx, err error) {
	err = db.around("begin", func() error {
		tx, err = db.pool.Begin(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &steppedTx{tx, db.steps, "commit"}, nil
}

type steppedTx struct {
	pgx.Tx
	steps
	commit string
}

func (tx *steppedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	savepoint, err := tx.Tx.Begin(ctx)
	return &steppedTx{savepoint, tx.steps, "release"}, err
}

func (tx *steppedTx) Exec(ctx context.Context, sql string, arguments ...any) (tag pgconn.CommandTag, err error) {
	step := ""
	for part, name := range map[string]string{
		`INSERT INTO "public"."idem_inbox"`: "mark", "INSERT INTO reservations": "effect", `UPDATE "public"."idem_inbox"`: "result", "WITH forgotten": "settle",
	} {
		if strings.Contains(sql, part) {
			step = name
		}
	}
	return tag, tx.around(step, func() error {
		tag, err = tx.Tx.Exec(ctx, sql, arguments...)
		return err
	})
}

// QueryRow counts a failure, where it is not the look at a mark.
func (tx *steppedTx) QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row {
	row := tx.Tx.QueryRow(ctx, sql, arguments...)
	if !strings.Contains(sql, "idem_inbox_failures") {
		return row
	}
	tx.commit = "commit of the count"
	return steppedRow{row, tx.steps}
}

type steppedRow struct {
	pgx.Row
	steps
}

func (r steppedRow) Scan(targets ...any) error {
	return r.around("count", func() error { return r.Row.Scan(targets...) })
}

func (tx *steppedTx) Commit(ctx context.Context) error {
	return tx.around(tx.commit, func() error { return tx.Tx.Commit(ctx) })
}

func (tx *steppedTx) Rollback(ctx context.Context) error {
	if tx.commit != "release" { // it comes after a COMMIT, too
		return tx.Tx.Rollback(ctx)
	}
	return tx.around("undo", func() error { return tx.Tx.Rollback(ctx) })
}

type steppedPublisher struct {
	message.Publisher
	steps
}

func (p steppedPublisher) Publish(topic string, messages ...*message.Message) error {
	return p.around("publish", func() error { return p.Publisher.Publish(topic, messages...) })
}

// acknowledging is the outermost middleware: what comes after it is the acknowledgement.
func (s steps) acknowledging(handler message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := handler(msg)
		if err == nil {
			s.at("acknowledgement/before")
			go func() {
				<-msg.Acked()
				s.at("acknowledgement/after")
			}()
		}
		return produced, err
	}
}

func (s steps) handle(msg *message.Message) error {
	return s.around("handler", func() error {
		if msg.Metadata["poison"] != "" {
			return fmt.Errorf("there is no such thing")
		}
		return reserve(msg)
	})
}

// consumeUntilKilled is the process. It ends, too, when its input does: with the test.
func consumeUntilKilled() int {
	if err := consumeAll(steps{os.Getenv(killVariable)}); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func consumeAll(s steps) error {
	url, topic := os.Getenv(brokerVariable), os.Getenv(topicVariable)
	pool, err := pgxpool.New(context.Background(), os.Getenv(dsnVariable))
	if err != nil {
		return err
	}
	table, err := inbox.New("", "")
	if err != nil {
		return err
	}
	publisher, err := natsPublisher(url)
	if err != nil {
		return err
	}
	middleware, err := consume.SQL(steppedDB{pool, s}, table, consume.Options{
		Consumer: "warehouse", Publisher: steppedPublisher{publisher, s}, DeadLetter: dead + "-" + topic, Attempts: 2,
	})
	if err != nil {
		return err
	}
	return consumeWith(url, topic, "warehouse", s.handle, s.acknowledging, middleware)
}

// consumeWith runs until the input ends: with the test.
func consumeWith(url, topic, group string, handler message.NoPublishHandlerFunc, middleware ...message.HandlerMiddleware) error {
	subscriber, err := natsSubscriber(url, group)
	if err != nil {
		return err
	}
	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(middleware...)
	router.AddConsumerHandler("handler", topic, subscriber, handler)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return router.Run(ctx)
}

// startConsumer starts the process; it ends with the test.
func startConsumer(t *testing.T, kill string, environ ...string) (ended <-chan *os.ProcessState) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := osexec.Command(program)
	child.Env = append(append(os.Environ(), killVariable+"="+kill), environ...)
	child.Stderr = os.Stderr
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	state := make(chan *os.ProcessState, 1)
	done := make(chan struct{})
	go func() {
		_ = child.Wait()
		state <- child.ProcessState
		close(done)
	}()
	t.Cleanup(func() {
		_ = input.Close()
		_ = child.Process.Kill()
		<-done
	})
	return state
}

func TestAConsumerThatIsKilledBetweenAnyTwoStepsLosesNothingAndDoublesNothing(t *testing.T) {
	url := startNATS(t)
	var all sync.WaitGroup
	slots := make(chan struct{}, 6)
	for i, step := range []string{
		"begin", "mark", "effect", "handler", "result", "release", "settle", "commit", "acknowledgement",
		"undo", "count", "commit of the count", "publish",
	} {
		for j, point := range []string{step + "/before", step + "/after"} {
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(point, func(t *testing.T) { killAt(t, point, url, fmt.Sprintf("%s-%d-%d", orders, i, j)) })
			})
		}
	}
	all.Wait()
}

func killAt(t *testing.T, point, url, topic string) {
	server := house.Postgres.Server(t)
	dsn := server.DSN(server.Database(t, ""))
	pool := database(t, dsn)
	warehouse(t, pool)
	b := onNATS(url)
	publisher := b.publisher(t)
	letters := collect(t, b.subscriber(t, "clerk"), dead+"-"+topic)
	for i := range 5 {
		msg := message.NewMessage(fmt.Sprint("m", i), message.Payload(fmt.Sprint("order-", i)))
		if i == 0 {
			msg.Metadata["poison"] = "yes"
		}
		if err := publisher.Publish(topic, msg); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{roleVariable + "=" + consumerRole, dsnVariable + "=" + dsn, brokerVariable + "=" + url, topicVariable + "=" + topic}
	killed := harness.Await(t, "the consumer to be killed at "+point, startConsumer(t, point, environ...))
	if status, is := killed.Sys().(syscall.WaitStatus); !is || status.Signal() != syscall.SIGKILL {
		t.Fatalf("it ended by %v", killed)
	}
	startConsumer(t, "", environ...)
	harness.Until(t, "all acknowledgements", func() bool { return outstandingOf(t, url, topic, "warehouse-"+topic) == 0 })
	harness.Until(t, "the dead letter", func() bool { return letters.ids()["m0"] })
	mustCount(t, pool, 4, "SELECT count(*) FROM reservations")
	mustCount(t, pool, 4, "SELECT count(DISTINCT what) FROM reservations")
	mustCount(t, pool, 4, "SELECT count(*) FROM idem_inbox")
	if n := len(letters.ids()); n != 1 {
		t.Errorf("dead letters of %d messages", n)
	}
	// It comes twice where the process ended between its sending and the acknowledgement.
	if n := len(letters.all()); n > 1 && point != "publish/after" && !strings.HasPrefix(point, "acknowledgement") {
		t.Errorf("%d dead letters of one message", n)
	}
}

// outstandingOf is how many messages of a topic a consumer has not acknowledged; -1: not known.
func outstandingOf(t *testing.T, url, topic, consumer string) int {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		return -1
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		return -1
	}
	info, err := js.ConsumerInfo(topic, consumer)
	if err != nil {
		return -1
	}
	return info.NumAckPending + int(info.NumPending)
}
