package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/examples/charge/bank"
	"github.com/idemd/idemd/examples/charge/child"
	"github.com/idemd/idemd/examples/charge/shop"
)

const (
	clients    = 50
	impatient  = clients / 2
	bankTakes  = 1500 * time.Millisecond
	demoLease  = 3 * time.Second
	demoBudget = 60 * time.Second
)

// demo charges one order from fifty clients at once. It fails unless there is one
// charge in the ledger, and everyone who asks gets its receipt.
func demo(ctx context.Context, program string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, demoBudget)
	defer cancel()
	dir, err := os.MkdirTemp("", "charge-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	daemon, err := child.Start(program, "--data-dir", filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer daemon.Kill()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }

	theBank, arrived := bank.New(), make(chan struct{}, clients)
	theBank.Arrived = func(bank.Request) { arrived <- struct{}{} }
	bankURL, closeBank, err := listen(theBank)
	if err != nil {
		return err
	}
	defer closeBank()
	conn, err := grpc.NewClient(daemon.GRPC, append(idem.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	guard := idem.New(conn, idem.Options{Tenant: "shop", Owner: "shop-1"})
	defer func() { _ = guard.Close(ctx) }()
	theShop := &shop.Shop{
		Idem: guard, Bank: bank.NewClient(bankURL, clients), Lease: demoLease, Settle: demoLease,
		Pretend: bank.Pretend{Before: bankTakes},
	}
	shopURL, closeShop, err := listen(theShop.Handler())
	if err != nil {
		return err
	}
	defer closeShop()

	say("A bank that takes %v for a charge and does not look for duplicates; a shop; idemd.", bankTakes)
	say("%d clients charge order 42 at once.", clients)
	buyers := buy(ctx, shopURL, clients)
	select {
	case <-arrived:
	case <-ctx.Done():
		return errors.New("nobody came to the bank")
	}
	say("The bank has got a request and is at work.")
	for _, b := range buyers[:impatient] {
		b.hangUp()
	}
	say("%d clients have hung up.", impatient)
	daemon.Kill()
	say("idemd is killed with -9.")
	if err := daemon.Restart(); err != nil {
		return err
	}
	say("idemd is started again.")
	receipts := map[string]int{}
	if err := collect(buyers[impatient:], receipts); err != nil {
		return err
	}
	say("%d clients have stayed and have their receipt.", clients-impatient)
	if err := collect(buy(ctx, shopURL, impatient), receipts); err != nil {
		return err
	}
	say("%d clients have come back and have theirs.", impatient)

	say("")
	for receipt, times := range receipts {
		say("%d times: %s", times, receipt)
	}
	ledger := theBank.Charges("42")
	say("charges of order 42 in the bank's ledger: %d", len(ledger))
	if len(ledger) != 1 || len(receipts) != 1 {
		return fmt.Errorf("there are %d charges and %d different receipts, want one of each", len(ledger), len(receipts))
	}
	return nil
}

// listen serves on a free port of 127.0.0.1.
func listen(handler http.Handler) (url string, closeAll func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() { _ = server.Close() }, nil
}

// buyer is a client of the shop.
type buyer struct {
	hangUp  context.CancelFunc
	done    chan struct{}
	receipt string
	err     error
}

// buy sends clients to the shop. Each repeats until it has a receipt or hangs up.
func buy(ctx context.Context, url string, n int) []*buyer {
	var start sync.WaitGroup
	start.Add(n)
	buyers := make([]*buyer, n)
	for i := range buyers {
		own, hangUp := context.WithCancel(ctx)
		b := &buyer{hangUp: hangUp, done: make(chan struct{})}
		buyers[i] = b
		go func() {
			defer close(b.done)
			start.Done()
			start.Wait()
			b.receipt, b.err = insist(own, url)
		}()
	}
	return buyers
}

func insist(ctx context.Context, url string) (receipt string, err error) {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders/42/charge?cents=1000", nil)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		response.Body.Close()
		switch {
		case err != nil:
			return "", err
		case response.StatusCode == http.StatusCreated:
			return string(body), nil
		case response.Header.Get("Retry-After") == "":
			return "", fmt.Errorf("the shop answers %s: %s", response.Status, body)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// collect waits for the clients and counts their receipts.
func collect(buyers []*buyer, receipts map[string]int) error {
	for _, b := range buyers {
		<-b.done
		if b.err != nil {
			return b.err
		}
		receipts[b.receipt]++
	}
	return nil
}
