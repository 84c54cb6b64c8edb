package idemhttp

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/idemd/idemd/clients/go/idem"
)

// errReturned is what a handler's goroutine hears that writes too late.
var errReturned = errors.New("idemhttp: the handler has returned")

// recorder is the ResponseWriter of a guarded handler. It holds the answer back until it
// is told to let it go, or must: flushed, hijacked, or too large to be kept. It is used by
// one handler, whose goroutines may write at once and too late.
type recorder struct {
	under http.ResponseWriter
	head  bool // of a HEAD request: there is no body to be measured

	mu       sync.Mutex
	status   int         // 0 until the header is written
	header   http.Header // as it was then
	declared int64       // Content-Length; -1 = none
	written  int64
	body     []byte // what is kept of it, all or nothing
	omitted  bool   // it is more than is kept
	sent     bool   // the answer is on its way to the caller
	hijacked bool
	another  bool // another guard has said something in it
	returned bool
}

// Header implements http.ResponseWriter.
func (rec *recorder) Header() http.Header { return rec.under.Header() }

// Unwrap is for http.ResponseController: deadlines, full duplex.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.under }

// WriteHeader implements http.ResponseWriter. Informational ones go out at once.
func (rec *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("idemhttp: invalid status code %d", status)) // as net/http does
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch {
	case rec.returned || rec.hijacked || rec.status != 0:
	case status < 200 && status != http.StatusSwitchingProtocols:
		rec.under.WriteHeader(status)
	default:
		rec.writeHeader(status)
	}
}

func (rec *recorder) writeHeader(status int) {
	rec.status, rec.header, rec.declared = status, rec.under.Header().Clone(), -1
	rec.another = rec.header.Get(ReasonHeader) != ""
	for _, name := range []string{ReasonHeader, ReplayedHeader, ExpiresHeader} {
		rec.header.Del(name) // they are ours to write
	}
	if n, err := strconv.ParseInt(rec.header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		rec.declared = n
	}
}

// Write implements http.ResponseWriter.
func (rec *recorder) Write(p []byte) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch {
	case rec.returned:
		return 0, errReturned
	case rec.hijacked:
		return 0, http.ErrHijacked
	case rec.status == 0:
		rec.writeHeader(http.StatusOK)
	}
	if !hasBody(rec.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if rec.declared >= 0 && rec.written+int64(len(p)) > rec.declared {
		return 0, http.ErrContentLength
	}
	rec.written += int64(len(p))
	if !rec.omitted && len(rec.body)+len(p) > idem.MaxBodyBytes {
		rec.omitted = true
		rec.send(nil)
		rec.body = nil
	}
	if !rec.omitted {
		rec.body = append(rec.body, p...)
	}
	if rec.sent {
		return rec.under.Write(p)
	}
	return len(p), nil
}

// hasBody: of a status that allows one.
func hasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// send lets the answer go, with headers that the guard adds, once.
func (rec *recorder) send(add http.Header) {
	if rec.sent {
		return
	}
	rec.sent = true
	rec.settleType()
	h := rec.under.Header()
	later := http.Header{} // what was set since is for trailers
	for name, values := range h {
		if then, was := rec.header[name]; !was || !slices.Equal(then, values) {
			later[name] = values
			delete(h, name)
		}
	}
	maps.Copy(h, rec.header)
	maps.Copy(h, add)
	rec.under.WriteHeader(rec.status)
	if len(rec.body) > 0 {
		_, _ = rec.under.Write(rec.body)
	}
	maps.Copy(h, later)
}

// settleType looks at the body for its type where net/http would, so that it is the same
// now and when it is replayed.
func (rec *recorder) settleType() {
	_, has := rec.header["Content-Type"]
	if !has && len(rec.body) > 0 && rec.header.Get("Content-Encoding") == "" && rec.header.Get("Transfer-Encoding") == "" {
		rec.header.Set("Content-Type", http.DetectContentType(rec.body))
	}
}

// Flush implements http.Flusher.
func (rec *recorder) Flush() { _ = rec.FlushError() }

// FlushError is Flush for http.ResponseController.
func (rec *recorder) FlushError() error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch {
	case rec.returned:
		return errReturned
	case rec.hijacked:
		return http.ErrHijacked
	case rec.status == 0:
		rec.writeHeader(http.StatusOK)
	}
	rec.send(nil)
	return http.NewResponseController(rec.under).Flush()
}

// Hijack implements http.Hijacker. What is said on the connection is the handler's, and
// recorded by nobody.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch {
	case rec.returned:
		return nil, nil, errReturned
	case rec.hijacked:
		return nil, nil, http.ErrHijacked
	}
	if rec.status != 0 {
		rec.send(nil)
	}
	conn, rw, err := http.NewResponseController(rec.under).Hijack()
	rec.hijacked = err == nil
	return conn, rw, err
}

// end is called once the handler has returned, or panicked: nothing of it is heard after.
func (rec *recorder) end() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.returned = true
}

// deliver gives the caller the answer, with headers that the guard adds: as trailers
// where the answer has begun already.
func (rec *recorder) deliver(add http.Header) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch {
	case rec.hijacked:
	case !rec.sent:
		rec.send(add)
	default:
		for name, values := range add {
			rec.under.Header()[http.TrailerPrefix+name] = values
		}
	}
}
