package torture

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/examples/charge/bank"
	"github.com/idemd/idemd/examples/charge/child"
)

// processes is how many pretended processes the clients live in.
const processes = 8

// world is what the operations share.
type world struct {
	config     Config
	started    time.Time
	daemon     *child.Daemon
	ledger     *bank.Bank
	bank       *bank.Client
	server     *http.Server
	processes  []*process
	operations []*operation
	counts     counts

	mu      sync.Mutex
	outages []outage
}

// process is a pretended process: a client of idemd on a connection of its own.
type process struct {
	conn *grpc.ClientConn
	idem *idem.Client
}

// outage is a time without a daemon.
type outage struct{ start, end time.Duration }

func newWorld(c Config, daemon *child.Daemon) (*world, error) {
	w := &world{config: c, started: time.Now(), daemon: daemon, ledger: bank.New()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.server = &http.Server{Handler: w.ledger}
	go func() { _ = w.server.Serve(listener) }()
	w.bank = bank.NewClient("http://"+listener.Addr().String(), 3*c.Workers)
	for i := range processes {
		conn, err := grpc.NewClient(daemon.GRPC, append(idem.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			w.close()
			return nil, err
		}
		w.processes = append(w.processes, &process{conn, idem.New(conn, idem.Options{Tenant: tenant, Owner: fmt.Sprintf("process-%d", i+1)})})
	}
	for i := range c.Operations {
		w.operations = append(w.operations, &operation{index: i, order: fmt.Sprintf("order-%d", i)})
	}
	return w, nil
}

func (w *world) close() {
	for _, p := range w.processes {
		_ = p.conn.Close()
	}
	_ = w.server.Close()
}

// now is the time since the start.
func (w *world) now() time.Duration { return time.Since(w.started) }

// killedDuring tells whether there was an outage in a span, or so shortly before that
// its end was still felt: connections come back within two seconds.
func (w *world) killedDuring(start, end time.Duration) bool {
	const felt = 2 * time.Second
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.outages {
		if o.start <= end && start <= o.end+felt {
			return true
		}
	}
	return false
}

// What is counted: what a call of Do can tell, and two more.
const (
	granted   = "attempts granted"
	askedBank = "the bank was asked"

	heardDone        = "done"
	heardReplay      = "replay"
	heardDeclined    = "declined"
	heardNotExecuted = "not executed"
	heardUnresolved  = "unresolved"
	heardInProgress  = "in progress"
	heardNothing     = "nothing"
)

// counts are numbers by name. The zero value is ready.
type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

func (c *counts) get(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}
