package pgstore

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// proxy stands between a store and its database. Once it is told so, it swallows the
// database's report that a statement is done, and cuts the connection.
type proxy struct {
	listener net.Listener
	server   string
	swallow  atomic.Pointer[string] // the beginning of a command tag; nil = nothing
	cuts     atomic.Int64
}

// throughProxy returns the DSN of a proxy in front of the database.
func throughProxy(t *testing.T, dsn string) (*proxy, string) {
	t.Helper()
	address, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{server: address.Host}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.listener.Close() })
	go p.serve()
	address.Host = p.listener.Addr().String()
	return p, address.String()
}

// cutOnce arms the proxy: the next report that begins so is swallowed.
func (p *proxy) cutOnce(tag string) { p.swallow.Store(&tag) }

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		go func() {
			p.forward(client, server)
			_ = client.Close()
			_ = server.Close()
		}()
	}
}

// forward passes on message by message: a letter, a length, a body.
func (p *proxy) forward(client io.Writer, server io.Reader) {
	var head [5]byte
	for {
		if _, err := io.ReadFull(server, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		const commandComplete = 'C'
		if tag := p.swallow.Load(); tag != nil && head[0] == commandComplete && bytes.HasPrefix(body, []byte(*tag)) &&
			p.swallow.CompareAndSwap(tag, nil) {
			p.cuts.Add(1)
			return
		}
		if _, err := client.Write(append(head[:], body...)); err != nil {
			return
		}
	}
}

func TestALostAnswerToCommitIsFoundOutWithTheToken(t *testing.T) {
	for _, lost := range []string{"COMMIT", "INSERT", "BEGIN"} {
		t.Run(lost, func(t *testing.T) {
			server, database := postgres.Server(t), postgres.database(t)
			p, dsn := throughProxy(t, server.DSN(database))
			s := openStore(t, Options{DSN: dsn})
			a := storetest.At("k")

			p.cutOnce(lost)
			outcome := s.Apply(t.Context(), []reservation.Command{storetest.Reserve(a, 1)})[0]
			if owned, granted := outcome.(*reservation.Owned); !granted || owned.Attempt != 1 {
				t.Fatalf("the caller is answered %T %v, it owns the first attempt", outcome, outcome)
			}
			if _, waits := settle(t, s, storetest.Reserve(a, 2)).(*reservation.InProgress); !waits {
				t.Fatal("another caller is let in")
			}

			if lost == "INSERT" {
				lost = "UPDATE"
			}
			p.cutOnce(lost)
			outcome = s.Apply(t.Context(), []reservation.Command{storetest.Complete(a, 1, "done")})[0]
			if _, recorded := outcome.(*reservation.Recorded); !recorded {
				t.Fatalf("the completion is answered %T %v", outcome, outcome)
			}
			if rec := get(t, s, a); rec.State != reservation.Succeeded || len(rec.Evidence) > 0 || len(rec.History) > 0 {
				t.Fatalf("stored is %+v", rec)
			}
			if p.cuts.Load() != 2 {
				t.Fatalf("the connection was cut %d times: the test proves nothing", p.cuts.Load())
			}
		})
	}
}
