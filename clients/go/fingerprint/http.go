package fingerprint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/idemd/idemd/clients/go/idem"
)

// HTTPRules say what of a request counts: method, route, path and body always, the query
// as far as it is not excluded, headers only if they are named.
type HTTPRules struct {
	// Rules of the body, if it is JSON. Strict holds for all of the request.
	Rules
	// Headers are the names of those that count: API versions, say. Host, where one guard
	// serves several.
	Headers []string
	// ExcludeQuery are the names of query parameters that don't count.
	ExcludeQuery []string
}

// Request is what a fingerprint of HTTP is made of.
type Request struct {
	Method string
	// Pattern is that of the route: "POST /orders/{id}/cancel"; empty if it is not known.
	// How its wildcards are named does not count.
	Pattern string
	// Host counts if the rules name it among the headers.
	Host string
	// Path is the one that was asked for, escaped: "/orders/17/cancel", before anything in
	// the server has cut or rewritten it. What the wildcards stand for counts through it.
	Path string
	// Query is what follows the question mark, escaped.
	Query  string
	Header http.Header
	// Body is all of it.
	Body []byte
}

// HTTP makes fingerprints of HTTP requests. The zero value goes by no rules. It may be
// used by many goroutines.
type HTTP struct {
	json         JSON
	headers      []string // lower case, sorted
	excludeQuery []string
}

// NewHTTP compiles rules; an error names the path, or header, that is none.
func NewHTTP(r HTTPRules) (*HTTP, error) {
	h := &HTTP{excludeQuery: slices.Clone(r.ExcludeQuery)}
	if err := h.json.compile(r.Rules); err != nil {
		return nil, err
	}
	for _, name := range r.Headers {
		if name = strings.ToLower(name); name == "" {
			return nil, errors.New("fingerprint: the empty name is no header's")
		}
		h.headers = append(h.headers, name)
	}
	slices.Sort(h.headers)
	h.headers = slices.Compact(h.headers)
	return h, nil
}

// mostAnnounced is how much room is made for a body because its length was announced.
const mostAnnounced = 64 << 10

// ReadRequest takes from a server's request what counts, and gives it its body back. A
// body of more than [MaxBytes] is a *[RefusedError], before anything is hashed; after
// that and after any other error the body is spent.
func ReadRequest(r *http.Request) (Request, error) {
	asked := r.URL
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil { // what http.StripPrefix and its like have left alone
		asked = sent
	}
	q := Request{
		Method: r.Method, Pattern: r.Pattern, Host: r.Host, Path: asked.EscapedPath(), Query: asked.RawQuery, Header: r.Header.Clone(),
	}
	if r.ContentLength > MaxBytes {
		return q, &RefusedError{Problem: TooLarge}
	}
	if r.Body == nil {
		return q, nil
	}
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), mostAnnounced)) + bytes.MinRead)
	_, err := body.ReadFrom(io.LimitReader(r.Body, MaxBytes+1))
	if q.Body = body.Bytes(); err != nil {
		return q, fmt.Errorf("fingerprint: reading the body: %w", err)
	}
	if len(q.Body) > MaxBytes {
		return q, &RefusedError{Problem: TooLarge}
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(q.Body), r.Body}
	return q, nil
}

// Sum is the fingerprint of a request, made on behalf of the subject: the end user or
// account, in whatever form names it for good; empty if there is none. Errors are
// *[RefusedError].
//
// A body that is JSON by its Content-Type but has no canonical form, a form or a query
// that can't be read are hashed raw, as [SchemeHTTPRaw]; strict rules refuse them.
// Bodies of other types are hashed as they are: a multipart one must be repeated with
// the same boundary.
func (h *HTTP) Sum(subject string, r Request) (idem.Fingerprint, error) {
	if len(r.Body) > MaxBytes {
		return idem.Fingerprint{}, &RefusedError{Problem: TooLarge}
	}
	path, err := segments(r.Path)
	if err != nil {
		return idem.Fingerprint{}, err
	}
	query, err := pairs(r.Query, h.excludeQuery)
	body, bodyErr := h.body(r)
	if err == nil {
		err = bodyErr
	}
	scheme := SchemeHTTP
	if err != nil {
		scheme = SchemeHTTPRaw
	}
	if err != nil && h.json.strict {
		return idem.Fingerprint{}, err
	}
	return sum(scheme, []byte(h.json.operation), []byte(subject), []byte(r.Method), []byte(nameless(r.Pattern)),
		path, query, h.header(r), body), nil
}

// nameless is a pattern without the names of its wildcards: "/orders/{}/{...}".
func nameless(pattern string) string {
	var out strings.Builder
	for {
		before, rest, has := strings.Cut(pattern, "{")
		name, after, closed := strings.Cut(rest, "}")
		if !has || !closed {
			return out.String() + pattern
		}
		out.WriteString(before)
		switch {
		case name == "$":
			out.WriteString("{$}")
		case strings.HasSuffix(name, "..."):
			out.WriteString("{...}")
		default:
			out.WriteString("{}")
		}
		pattern = after
	}
}

// segments are what stands between the slashes of a path, unescaped.
func segments(path string) (framed []byte, _ error) {
	for segment := range strings.SplitSeq(path, "/") {
		text, err := url.PathUnescape(segment)
		if err != nil {
			return nil, &RefusedError{Problem: InvalidSyntax}
		}
		framed = frame(framed, []byte(text))
	}
	return framed, nil
}

// maxPairs bounds what a query or a form is taken apart to.
const maxPairs = 10_000

// pairs are the names and values of a query or form, sorted by name; those of one name
// stay in their order. What can't be read, or has too many, stays as it is.
func pairs(encoded string, exclude []string) ([]byte, error) {
	if strings.Count(encoded, "&") >= maxPairs {
		return frame(nil, []byte("raw"), []byte(encoded)), &RefusedError{Problem: TooLarge}
	}
	type pair struct{ name, value string }
	var all []pair
	for text := range strings.SplitSeq(encoded, "&") {
		name, value, _ := strings.Cut(text, "=")
		name, nameErr := url.QueryUnescape(name)
		value, valueErr := url.QueryUnescape(value)
		if nameErr != nil || valueErr != nil || strings.Contains(text, ";") { // which some take for "&"
			return frame(nil, []byte("raw"), []byte(encoded)), &RefusedError{Problem: InvalidSyntax}
		}
		if text != "" && !slices.Contains(exclude, name) {
			all = append(all, pair{name, value})
		}
	}
	slices.SortStableFunc(all, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	framed := frame(nil, []byte("pairs"))
	for _, p := range all {
		framed = frame(framed, []byte(p.name), []byte(p.value))
	}
	return framed, nil
}

// formPairs are those of a body. Each has a name and a value, in no other bytes than
// programs that encode forms write: what is sent as a form and is none, like the JSON of
// who forgot to say so, stays as it is.
func formPairs(body []byte) ([]byte, error) {
	var written [256]bool
	for _, b := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789*-._~!'()+%&=") {
		written[b] = true
	}
	isForm := !slices.ContainsFunc(body, func(b byte) bool { return !written[b] })
	for pair := range bytes.SplitSeq(body, []byte("&")) {
		isForm = isForm && bytes.IndexByte(pair, '=') >= 0
	}
	if !isForm {
		return frame(nil, []byte("raw"), body), &RefusedError{Problem: InvalidSyntax}
	}
	return pairs(string(body), nil)
}

// header is the name and the value of each header that counts and is there.
func (h *HTTP) header(r Request) (framed []byte) {
	for _, name := range h.headers {
		values := r.Header.Values(name)
		if name == "host" && r.Host != "" {
			values = []string{r.Host}
		}
		if len(values) > 0 {
			framed = frame(framed, []byte(name), []byte(strings.Join(values, ", ")))
		}
	}
	return framed
}

// body is the kind, the media type and the canonical form of a body. Beside an error it
// is the body as it is.
func (h *HTTP) body(r Request) ([]byte, error) {
	if len(r.Body) == 0 {
		return frame(nil, []byte("none")), nil
	}
	contentType := strings.TrimSpace(r.Header.Get("Content-Type"))
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch {
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		c := h.json.canonicalizer()
		defer h.json.release(c)
		canonical, err := c.run(r.Body, h.json.rules, h.json.strict)
		if err != nil {
			return frame(nil, []byte("json-raw"), []byte(media), r.Body), err
		}
		return frame(nil, []byte("json"), []byte(media), canonical), nil
	case media == "application/x-www-form-urlencoded":
		form, err := formPairs(r.Body)
		return frame(nil, []byte("form"), []byte(media), form), err
	}
	return frame(nil, []byte("raw"), []byte(contentType), r.Body), nil
}
