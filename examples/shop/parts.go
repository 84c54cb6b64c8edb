package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/clients/go/messaging/relay"
	"github.com/idemd/idemd/examples/shop/broker"
	"github.com/idemd/idemd/examples/shop/chaos"
	"github.com/idemd/idemd/examples/shop/events"
	"github.com/idemd/idemd/examples/shop/mailer"
	"github.com/idemd/idemd/examples/shop/mailserver"
	"github.com/idemd/idemd/examples/shop/orders"
	"github.com/idemd/idemd/examples/shop/supervise"
	"github.com/idemd/idemd/examples/shop/warehouse"
)

const (
	// postgresEnv has the database's address, in which there may be a password.
	postgresEnv = "SHOP_POSTGRES"
	// guardPatience is how long idemd is tried while it can't be reached.
	guardPatience = 2 * time.Second
	// stopLimit is how long calls that are under way may take when a part is stopped.
	stopLimit = 3 * time.Second
)

// part is what one of the processes does.
type part func(ctx context.Context, args []string, logs io.Writer) error

// parts are the processes but idemd, by name.
func parts() map[string]part {
	return map[string]part{
		"mailserver": runMailserver, "broker": runBroker, "orders": runOrders, "relay": runRelay, "warehouse": runWarehouse, "mailer": runMailer,
	}
}

// broken are all that can be broken.
func broken() []string {
	return []string{
		chaos.BrokenKey, orders.BrokenFence, orders.BrokenOutbox, warehouse.BrokenInbox, mailer.BrokenAcknowledge, mailer.BrokenGuard,
	}
}

func logger(name string, logs io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(logs, nil)).With("process", name)
}

// options are the flags of the parts: each has some of them.
type options struct {
	idemd, broker, mailserver, broken, dir string
	port                                   int
}

func optionsIn(name string, args []string) (o options, err error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&o.idemd, "idemd", "", "`address` of idemd")
	flags.StringVar(&o.broker, "broker", "", "`URL` of the broker")
	flags.StringVar(&o.mailserver, "mailserver", "", "`URL` of the mail server")
	flags.StringVar(&o.broken, "broken", "", "what is broken")
	flags.StringVar(&o.dir, "dir", "", "`path` of the broker's files")
	flags.IntVar(&o.port, "port", 0, "the broker's")
	return o, flags.Parse(args)
}

func runMailserver(ctx context.Context, _ []string, _ io.Writer) error {
	return serveHTTP(ctx, mailserver.New())
}

func runBroker(ctx context.Context, args []string, _ io.Writer) error {
	o, err := optionsIn("broker", args)
	if err != nil {
		return err
	}
	return broker.Serve(ctx, o.port, o.dir)
}

func runOrders(ctx context.Context, args []string, logs io.Writer) error {
	o, err := optionsIn("orders", args)
	if err != nil {
		return err
	}
	log := logger("orders", logs)
	pool, err := pgxpool.New(ctx, os.Getenv(postgresEnv))
	if err != nil {
		return err
	}
	defer pool.Close()
	client, closeClient, err := guardClient(o.idemd, "orders", log)
	if err != nil {
		return err
	}
	defer closeClient()
	config := orders.Config{Pool: pool, Log: log, Broken: o.broken}
	if o.broken == orders.BrokenOutbox {
		if config.Publisher, err = broker.NewPublisher(o.broker, watermill.NewSlogLogger(log)); err != nil {
			return err
		}
	}
	handler, err := orders.Handler(client, config)
	if err != nil {
		return err
	}
	return serveHTTP(ctx, handler)
}

func runRelay(ctx context.Context, args []string, logs io.Writer) error {
	o, err := optionsIn("relay", args)
	if err != nil {
		return err
	}
	log := logger("relay", logs)
	postgres, err := pgxpool.ParseConfig(os.Getenv(postgresEnv))
	if err != nil {
		return err
	}
	publisher, err := broker.NewPublisher(o.broker, watermill.NewSlogLogger(log))
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	r, err := relay.New(relay.Config{
		Outbox: orders.Outbox(), Postgres: postgres, Publisher: publisher, Logger: log,
		Topic: func(outbox.Event) string { return events.Placed },
		Classify: func(err error) relay.Failure {
			switch {
			case broker.TooLarge(err):
				return relay.Poison
			case broker.Away(err):
				return relay.Outage
			}
			return relay.Unclear
		},
		// Short, so that what a killed relay has claimed is sent within seconds.
		SendTimeout: time.Second, Claim: 2 * time.Second, Poll: 200 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

func runWarehouse(ctx context.Context, args []string, logs io.Writer) error {
	o, err := optionsIn("warehouse", args)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, os.Getenv(postgresEnv))
	if err != nil {
		return err
	}
	defer pool.Close()
	return consumeFrom(ctx, o.broker, "warehouse", logger("warehouse", logs), func(router *message.Router, subscriber message.Subscriber, publisher message.Publisher) error {
		return warehouse.Route(router, pool, subscriber, publisher, o.broken)
	})
}

func runMailer(ctx context.Context, args []string, logs io.Writer) error {
	o, err := optionsIn("mailer", args)
	if err != nil {
		return err
	}
	log := logger("mailer", logs)
	client, closeClient, err := guardClient(o.idemd, "mails", log)
	if err != nil {
		return err
	}
	defer closeClient()
	m := &mailer.Mailer{Server: mailserver.NewClient(o.mailserver), Log: log}
	return consumeFrom(ctx, o.broker, "mailer", log, func(router *message.Router, subscriber message.Subscriber, publisher message.Publisher) error {
		return m.Route(router, client, subscriber, publisher, o.broken)
	})
}

// consumeFrom runs a router with what route adds to it.
func consumeFrom(ctx context.Context, url, consumer string, log *slog.Logger, route func(*message.Router, message.Subscriber, message.Publisher) error) error {
	adapter := watermill.NewSlogLogger(log)
	publisher, err := broker.NewPublisher(url, adapter)
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	subscriber, err := broker.NewSubscriber(url, consumer, adapter)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: stopLimit}, adapter)
	if err != nil {
		return err
	}
	if err := route(router, subscriber, publisher); err != nil {
		return err
	}
	return router.Run(ctx)
}

// guardClient is idemd's client for one part: its keys are in a namespace of its own.
func guardClient(address, namespace string, log *slog.Logger) (*idem.Client, func(), error) {
	conn, err := grpc.NewClient(address, append(idem.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, nil, err
	}
	client := idem.New(conn, idem.Options{Tenant: "shop", Namespace: namespace, Patience: guardPatience, Logger: log})
	return client, func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		_ = client.Close(ctx) // what could not be told by then is what a crash would leave
		_ = conn.Close()
	}, nil
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, handler http.Handler) error {
	listener, err := supervise.Listener()
	if err != nil {
		return err
	}
	server, down := &http.Server{Handler: handler, ReadHeaderTimeout: stopLimit}, make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(down)
		limit, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if server.Shutdown(limit) != nil {
			_ = server.Close()
		}
	})
	err = server.Serve(listener)
	if !stop() {
		<-down // Serve returns when Shutdown begins
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
