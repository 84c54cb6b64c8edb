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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/examples/payments/bank"
	"github.com/idemd/idemd/examples/payments/front"
	paymentsv1 "github.com/idemd/idemd/examples/payments/proto/payments/v1"
	"github.com/idemd/idemd/examples/payments/service"
	"github.com/idemd/idemd/examples/payments/supervise"
)

const (
	// secretEnv has what signs the addresses of the front's status resources.
	secretEnv = "PAYMENTS_STATUS_SECRET"
	// guardPatience is how long idemd is tried while it can't be reached: shorter than
	// callers wait.
	guardPatience = 5 * time.Second
	// stopLimit is how long calls that are under way may take when a part is stopped.
	stopLimit = 3 * time.Second
)

// part is what one of the processes does.
type part func(ctx context.Context, args []string, logs io.Writer) error

// parts are the processes but idemd, by name.
func parts() map[string]part {
	return map[string]part{"bank": runBank, "payments": runPayments, "front": runFront}
}

func logger(name string, logs io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(logs, nil)).With("process", name)
}

func runBank(ctx context.Context, _ []string, logs io.Writer) error {
	return serveHTTP(ctx, bank.New(logger("bank", logs)))
}

func runPayments(ctx context.Context, args []string, logs io.Writer) error {
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	idemd := flags.String("idemd", "", "`address` of idemd")
	bankURL := flags.String("bank", "", "`URL` of the bank")
	file := flags.String("accounts", "", "`path` of the accounts' database")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := logger("payments", logs)
	accounts, err := service.OpenAccounts(*file)
	if err != nil {
		return err
	}
	defer func() { _ = accounts.Close() }()
	client, closeClient, err := guardClient(*idemd, "payments", log)
	if err != nil {
		return err
	}
	defer closeClient()
	s := &service.Service{Bank: bank.NewClient(*bankURL), Accounts: accounts, Log: log, Die: die}
	server, err := s.Server(client)
	if err != nil {
		return err
	}
	listener, err := supervise.Listener()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		defer time.AfterFunc(stopLimit, server.Stop).Stop()
		server.GracefulStop()
	})()
	return server.Serve(listener)
}

func runFront(ctx context.Context, args []string, logs io.Writer) error {
	flags := flag.NewFlagSet("front", flag.ContinueOnError)
	idemd := flags.String("idemd", "", "`address` of idemd")
	payments := flags.String("payments", "", "`address` of payments")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := logger("front", logs)
	client, closeClient, err := guardClient(*idemd, "front", log)
	if err != nil {
		return err
	}
	defer closeClient()
	// The handlers derive the keys of their calls. A call of these methods that is made
	// elsewhere gets a key of its own here, one for all tries that gRPC makes.
	keys, err := idemgrpc.UnaryClientInterceptor(idemgrpc.ClientConfig{Methods: []string{
		paymentsv1.PaymentsService_Charge_FullMethodName, paymentsv1.PaymentsService_UpdateAccount_FullMethodName,
	}})
	if err != nil {
		return err
	}
	// Calls wait for payments while it is down: each that fails at once costs an attempt of
	// the front's key.
	conn, err := grpc.NewClient(*payments, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(keys), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	handler, err := front.Handler(client, conn, []byte(os.Getenv(secretEnv)), log)
	if err != nil {
		return err
	}
	return serveHTTP(ctx, handler)
}

// guardClient is idemd's client for one service: its keys are in a namespace of its own.
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

// die is kill -9.
func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // not one step further
}
