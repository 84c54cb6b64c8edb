package front

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/examples/payments/refusal"
)

// problem is a refusal, as an RFC 9457 document.
type problem struct {
	Title          string `json:"title"`
	Status         int    `json:"status"`
	CurrentVersion int64  `json:"current_version,omitempty"`
}

// refuse answers with what payments has said, and declares what that means for this
// front's own key. What is refused for good is replayed; all else runs again when it is
// repeated, and then payments is asked anew, under the same derived key.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	said := status.Convert(err)
	p := refusedForGood(said)
	if p == nil {
		p = &problem{Title: "It was not done, or nobody knows yet: repeat it with the same key", Status: http.StatusServiceUnavailable}
		idemhttp.DeclareCall(r, err)
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter(said).Seconds())))
	}
	p.write(w)
}

func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // who has hung up hears nothing
}

// refusedForGood reads what payments refuses for good, all of it 4xx, which is final by
// the guard's table; nil: it is something else. FailedPrecondition counts with a reason of
// payments' own only: its guard says so, too, where nobody knows the outcome.
func refusedForGood(said *status.Status) *problem {
	switch info := refusal.In(said); info.GetReason() {
	case refusal.CardDeclined:
		return &problem{Title: said.Message(), Status: http.StatusPaymentRequired}
	case refusal.KeyReused:
		return &problem{Title: said.Message(), Status: http.StatusConflict}
	case refusal.VersionConflict:
		current, _ := strconv.ParseInt(info.GetMetadata()["version"], 10, 64)
		return &problem{Title: said.Message(), Status: http.StatusConflict, CurrentVersion: current}
	}
	switch said.Code() {
	case codes.InvalidArgument:
		return &problem{Title: said.Message(), Status: http.StatusBadRequest}
	case codes.NotFound:
		return &problem{Title: said.Message(), Status: http.StatusNotFound}
	}
	return nil
}

// retryAfter is when payments says that repeating can help, in whole seconds, at least one.
func retryAfter(said *status.Status) time.Duration {
	for _, detail := range said.Details() {
		if info, is := detail.(*errdetails.RetryInfo); is {
			return max(info.GetRetryDelay().AsDuration()+time.Second-1, time.Second)
		}
	}
	return time.Second
}
