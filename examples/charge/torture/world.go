package torture

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	stalls  []outage       // when this process itself did nothing
	own     []*idem.Client // of calls that had one of their own, and have ended
	swept   int            // records, as far as the daemons have told before they were killed
}

// process is a pretended process: a client of idemd on a connection of its own.
type process struct {
	wire *grpc.ClientConn
	conn grpc.ClientConnInterface // on the wire, and noted
	idem *idem.Client
}

// outage is a time without a daemon, or without this process.
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
		p := &process{wire: conn, conn: w.connection(conn)}
		p.idem = idem.New(p.conn, idem.Options{
			Tenant: tenant, Owner: fmt.Sprintf("process-%d", i+1), NoBatches: c.breaksCalls(),
		})
		w.processes = append(w.processes, p)
	}
	for i := range c.Operations {
		w.operations = append(w.operations, &operation{index: i, order: fmt.Sprintf("order-%d", i)})
	}
	return w, nil
}

func (w *world) close() {
	for _, p := range w.processes {
		_ = p.wire.Close()
	}
	_ = w.server.Close()
}

// now is the time since the start.
func (w *world) now() time.Duration { return time.Since(w.started) }

// survived notes a client of a single call that has ended: it may have something to tell.
func (w *world) survived(c *idem.Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own = append(w.own, c)
}

// countSwept asks the daemon how many records it has swept since it was started.
func (w *world) countSwept(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.daemon.HTTP+"/metrics", nil)
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text, is := strings.CutPrefix(lines.Text(), "idemd_swept_total "); is {
			n, _ := strconv.ParseFloat(text, 64) // of a metric there is always one
			w.swept += int(n)
		}
	}
}

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
	heardExpired     = "may have expired"
	heardNothing     = "nothing"
)

// watch notes when this process is stalled, until ctx ends: on a machine with too much to do
// it is not the daemon's fault, nor the client's, that a lease passes.
func (w *world) watch(ctx context.Context) {
	const tick, much = 20 * time.Millisecond, 250 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for last := w.now(); ; last = w.now() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if now := w.now(); now-last > much {
			w.mu.Lock()
			w.stalls = append(w.stalls, outage{last, now})
			w.mu.Unlock()
		}
	}
}

// stalled is how often this process was, and how long at most.
func (w *world) stalled() (n int, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.stalls {
		longest = max(longest, s.end-s.start)
	}
	return len(w.stalls), longest
}

func (w *world) stalledDuring(start, end time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.stalls, func(o outage) bool { return o.start <= end && start <= o.end })
}

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
