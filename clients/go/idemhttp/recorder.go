package idemhttp

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
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
	// given is the handler's. Its goroutines may write to it when it has returned, so
	// nobody reads it after that.
	given http.Header

	mu       sync.Mutex
	status   int         // 0 until the header is written
	header   http.Header // as it was then
	last     http.Header // as it was when the handler returned; nil: there is nothing more in it
	declared int64       // Content-Length; -1 = none
	asked    int64       // to be written, refused or not
	written  int64
	body     []byte // what is kept of it, all or nothing
	omitted  bool   // it is more than is kept
	http2    bool   // there may always be trailers
	sent     bool   // the answer is on its way to the caller
	hijacked bool
	another  bool // another guard has said something in it
	returned bool
}

func newRecorder(w http.ResponseWriter, r *http.Request) *recorder {
	rec := &recorder{under: w, head: r.Method == http.MethodHead, http2: r.ProtoMajor >= 2, given: w.Header().Clone()}
	if rec.given == nil {
		rec.given = http.Header{}
	}
	return rec
}

// Header implements http.ResponseWriter.
func (rec *recorder) Header() http.Header { return rec.given }

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
		rec.inform(status)
	default:
		rec.writeHeader(status)
	}
}

// inform sends an informational answer. Its headers are not yet those of the answer, which
// may become the guard's own.
func (rec *recorder) inform(status int) {
	before := rec.under.Header().Clone()
	rec.show(rec.given.Clone())
	rec.under.WriteHeader(status)
	rec.show(before)
}

func (rec *recorder) writeHeader(status int) {
	rec.status, rec.declared = status, -1
	if rec.header = rec.last; !rec.returned {
		rec.header = rec.given.Clone()
	}
	rec.another = rec.header.Get(ReasonHeader) != ""
	for _, name := range ownHeaders() {
		rec.header.Del(name)
	}
	if n, err := strconv.ParseInt(rec.header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		rec.declared = n
	}
}

// ownHeaders are for the guard to write.
func ownHeaders() []string { return []string{ReasonHeader, ReplayedHeader, ExpiresHeader} }

// show makes these the headers of the answer below.
func (rec *recorder) show(header http.Header) {
	h := rec.under.Header()
	clear(h)
	maps.Copy(h, header)
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
	if len(p) > 0 && !hasBody(rec.status) {
		return 0, http.ErrBodyNotAllowed
	}
	// As net/http does: what comes after a write that was refused is refused, too.
	if rec.asked += int64(len(p)); rec.declared >= 0 && rec.asked > rec.declared {
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
	rec.show(rec.header)
	maps.Copy(rec.under.Header(), add)
	rec.under.WriteHeader(rec.status)
	if len(rec.body) > 0 {
		_, _ = rec.under.Write(rec.body)
	}
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
	if rec.returned {
		return
	}
	rec.returned = true
	if rec.status == 0 || rec.mayTrail() {
		rec.last = rec.given.Clone()
	}
}

// unchunked is up to where net/http knows how long an answer is that does not say so:
// there are no trailers in it.
const unchunked = 2048

// mayTrail: net/http would look for trailers, and so read the header as it is now. Else it
// is left alone, for it may still be written to.
func (rec *recorder) mayTrail() bool {
	if rec.sent || rec.http2 || rec.written > unchunked || len(rec.header["Trailer"]) > 0 {
		return true
	}
	for name := range rec.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// deliver gives the caller the answer, with headers that the guard adds: as trailers
// where the answer has begun already.
func (rec *recorder) deliver(add http.Header) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.hijacked {
		return
	}
	begun := rec.sent
	rec.send(add)
	h := rec.under.Header()
	rec.trail(h)
	if begun {
		for name, values := range add {
			h[http.TrailerPrefix+name] = values
		}
	}
}

// trail gives the header below the handler's trailers: those that were announced, and those
// that say by their name that they are some.
func (rec *recorder) trail(h http.Header) {
	for _, announced := range rec.header["Trailer"] {
		for name := range strings.SplitSeq(announced, ",") {
			name = http.CanonicalHeaderKey(textproto.TrimString(name))
			if delete(h, name); len(rec.last[name]) > 0 && !slices.Contains(ownHeaders(), name) {
				h[name] = rec.last[name]
			}
		}
	}
	for name, values := range rec.last {
		if own, is := strings.CutPrefix(name, http.TrailerPrefix); is && !slices.Contains(ownHeaders(), own) {
			h[name] = values
		}
	}
}
