package idemhttp

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/idemd/idemd/clients/go/internal/guard"
)

// received is the request as whatever stands behind the guard has it. The key that it came
// with is known, for the calls that are made there: it belongs to no other one. A key of
// [WithKey] around it has named this request, and goes no further.
func received(r *http.Request) *http.Request {
	ctx := guard.WithIncoming(r.Context(), r.Header.Values(KeyHeader)...)
	if ctx.Value(keyKey{}) != nil {
		ctx = context.WithValue(ctx, keyKey{}, nil)
	}
	if ctx == r.Context() {
		return r
	}
	return r.WithContext(ctx)
}

// handle runs a handler. net/http removes the files of a form for its own request only, so
// those of a copy are removed here.
func handle(h http.Handler, w http.ResponseWriter, r *http.Request) {
	defer removeFiles(r, r.MultipartForm)
	h.ServeHTTP(w, r)
}

// removeFiles of a form that has been read from the request since then.
func removeFiles(r *http.Request, then *multipart.Form) {
	if r.MultipartForm != nil && r.MultipartForm != then {
		_ = r.MultipartForm.RemoveAll() // as net/http does
	}
}

var errBodyGone = errors.New("idemhttp: something before the guard has read the body (ParseForm, FormValue, ParseMultipartForm or the like): " +
	"put the guard before it, or give the request its body back")

// isGone: something before the guard has read of the body, so that nobody knows what the
// request means. Where the length is not known, only forms tell.
func isGone(r *http.Request, left []byte) bool {
	if r.ContentLength >= 0 {
		return int64(len(left)) < r.ContentLength
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return r.MultipartForm != nil || r.PostForm != nil && kind == "application/x-www-form-urlencoded"
}

// body is one that was read before.
type body struct{ bytes.Reader }

// Close implements io.Closer.
func (*body) Close() error { return nil }
