package messaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/consume"
	"github.com/idemd/idemd/e2e/harness"
)

// The consumer whose effect is outside, as a process that kills itself at one of its steps.
const (
	mailerRole     = "mailer"
	daemonVariable = "IDEMD_E2E_DAEMON"
)

// calls are steps, too: named as the RPC.
func (s steps) calls(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return s.around(path.Base(method), func() error { return invoke(ctx, method, request, reply, conn, options...) })
}

func mailUntilKilled() int {
	if err := mailAll(steps{os.Getenv(killVariable)}); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func mailAll(s steps) error {
	url, topic := os.Getenv(brokerVariable), os.Getenv(topicVariable)
	outside, err := pgxpool.New(context.Background(), os.Getenv(dsnVariable))
	if err != nil {
		return err
	}
	publisher, err := natsPublisher(url)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(os.Getenv(daemonVariable), append(idem.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(s.calls))...)
	if err != nil {
		return err
	}
	middleware, err := consume.Idem(idem.New(conn, idem.Options{Tenant: topic, NoBatches: true}), consume.Options{
		Consumer: "mailer", Publisher: steppedPublisher{publisher, s}, DeadLetter: dead + "-" + topic, Unresolved: unresolved + "-" + topic,
		Operation: idem.Operation{Lease: time.Second, Wait: 3 * time.Second},
	})
	if err != nil {
		return err
	}
	return consumeWith(url, topic, "mailer", func(msg *message.Message) error {
		return s.around("handler", func() error {
			if msg.Metadata["poison"] != "" {
				return idem.Final(errors.New("there is no such mailbox"))
			}
			return s.around("effect", func() error {
				_, err := outside.Exec(msg.Context(), "INSERT INTO mails VALUES ($1)", msg.UUID)
				return err
			})
		})
	}, s.acknowledging, middleware)
}

func TestAMailerThatIsKilledBetweenAnyTwoStepsSendsNothingTwiceAndLosesNothing(t *testing.T) {
	url := startNATS(t)
	daemon := house.Serve(t, house.Embedded(t))
	var all sync.WaitGroup
	slots := make(chan struct{}, 6)
	for i, step := range []string{"Reserve", "handler", "effect", "Complete", "Fail", "publish", "acknowledgement"} {
		for j, point := range []string{step + "/before", step + "/after"} {
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(point, func(t *testing.T) { killMailerAt(t, point, url, daemon.GRPC, fmt.Sprintf("mails-%d-%d", i, j)) })
			})
		}
	}
	all.Wait()
}

func killMailerAt(t *testing.T, point, url, daemon, topic string) {
	const n = 5
	server := house.Postgres.Server(t)
	dsn := server.DSN(server.Database(t, ""))
	pool := database(t, dsn)
	exec(t, pool, "CREATE TABLE mails (id text)")
	b := onNATS(url)
	publisher := b.publisher(t)
	letters := collect(t, b.subscriber(t, "clerk"), dead+"-"+topic)
	open := collect(t, b.subscriber(t, "clerk"), unresolved+"-"+topic)
	for i := range n {
		msg := message.NewMessage(fmt.Sprint("m", i), message.Payload(fmt.Sprint("order-", i)))
		if i == 0 {
			msg.Metadata["poison"] = "yes"
		}
		if err := publisher.Publish(topic, msg); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{
		roleVariable + "=" + mailerRole, dsnVariable + "=" + dsn, brokerVariable + "=" + url, topicVariable + "=" + topic, daemonVariable + "=" + daemon,
	}
	killed := harness.Await(t, "the mailer to be killed at "+point, startConsumer(t, point, environ...))
	if status, is := killed.Sys().(syscall.WaitStatus); !is || status.Signal() != syscall.SIGKILL {
		t.Fatalf("it ended by %v", killed)
	}
	startConsumer(t, "", environ...)
	harness.Until(t, "all acknowledgements", func() bool { return outstandingOf(t, url, topic, "mailer-"+topic) == 0 })
	accounted := func(id string) bool {
		return count(t, pool, "SELECT count(*) FROM mails WHERE id = $1", id) == 1 || letters.ids()[id] || open.ids()[id]
	}
	for i := range n {
		id := fmt.Sprint("m", i)
		harness.Until(t, "a mail, a dead letter or a message for people for "+id, func() bool { return accounted(id) })
	}
	mustCount(t, pool, 0, "SELECT count(*) FROM (SELECT id FROM mails GROUP BY id HAVING count(*) > 1) AS twice")
	mustCount(t, pool, 0, "SELECT count(*) FROM mails WHERE id = 'm0'")
	// Of what it was at work on when it was killed nobody knows; of nothing else.
	if n := len(open.ids()); n > 4 {
		t.Errorf("nobody knows of %d", n)
	}
}
