package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	"github.com/idemd/idemd/examples/charge/child"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// docs/client.md says how fn can end and what follows. Each row is walked in each of its
// modes, on each store.
func TestEveryEndingOfAnEffectIsAsThePageSays(t *testing.T) {
	rows := endingRows(t, "client.md", "## How fn can end", "fn")
	mustBeWhole(t, rows, maps.Keys(endings()), map[string]string{
		"a result, taken over meanwhile":            "Transactional", // under HOLD nobody takes over
		`a result, judged "not executed" meanwhile`: "External",
	})
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		for i, row := range rows {
			for _, mode := range row.modes(t) {
				t.Run(fmt.Sprintf("%s, %s", row.ending, mode.name), func(t *testing.T) {
					w := newWalk(t, d, fmt.Sprintf("row-%d-%s", i, mode.name), mode.mode)
					endings()[row.ending](w)
					w.mustReturn(row.returns)
					w.mustBeStored(row.stored)
					w.nextMustHear(row.hears)
				})
			}
		}
	})
}

// walk is one row on its way. Its client reaches the daemon through a proxy, the others
// directly.
type walk struct {
	*testing.T
	op     idem.Operation
	daemon *child.Daemon
	proxy  *fault.GRPC
	client *idem.Client
	direct api

	answer   *idem.Answer
	err      error
	panicked bool
	exited   bool
	gone     bool // the owner's process has ended: it returns nothing
}

func newWalk(t *testing.T, d *child.Daemon, key string, mode idem.Mode) *walk {
	w := &walk{T: t, daemon: d, direct: dial(t, d.GRPC), proxy: harness.GRPC(t, d.GRPC)}
	w.op = idem.Operation{Tenant: "acme", Key: key, Mode: mode, Lease: time.Minute, Wait: -1, Fingerprint: idem.SHA256("test-v1", []byte(key))}
	w.client = newClient(t, w.proxy.Addr(), idem.Options{FinishTimeout: 10 * time.Second})
	return w
}

// newClient is a client of its own on an address; it has told everything, or was cut off,
// when the test ends.
func newClient(t *testing.T, addr string, o idem.Options) *idem.Client {
	t.Helper()
	c := idem.New(harness.Dial(t, addr, idem.DialOptions()...), o)
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(over)
	})
	return c
}

func (w *walk) do(ctx context.Context, fn idem.Func) {
	w.Helper()
	defer func() { w.panicked = recover() != nil }()
	w.answer, w.err = w.client.Do(ctx, w.op, fn)
}

// other reserves the same operation with a token of its own, as another caller.
func (w *walk) other(token []byte) *idemdv1.ReserveRequest {
	r := &idemdv1.ReserveRequest{
		Tenant: w.op.Tenant, Key: w.op.Key, OwnerToken: token, Lease: durationpb.New(w.op.Lease),
		Fingerprint: &idemdv1.Fingerprint{Scheme: w.op.Fingerprint.Scheme, Digest: w.op.Fingerprint.Digest},
		OnLapse:     idemdv1.LapsePolicy_LAPSE_POLICY_HOLD,
	}
	if w.op.Mode == idem.Transactional {
		r.OnLapse = idemdv1.LapsePolicy_LAPSE_POLICY_RERUN
	}
	return r
}

func (w *walk) mustReturn(want string) {
	w.Helper()
	var (
		undone  *idem.NotExecutedError
		final   *idem.FinalError
		unknown *idem.UnresolvedError
		refused *idem.Error
	)
	got := "something else"
	switch {
	case w.exited:
		got = "nothing: it goes on"
	case w.gone:
		got = "nothing: it is gone"
	case w.panicked:
		got = "nothing: the panic goes on"
	case w.err == nil && w.answer.Unrecorded != nil:
		got = "Answer, Unrecorded"
	case w.err == nil && string(w.answer.Result.GetBody()) != "" && !w.answer.Replayed:
		got = "Answer"
	case errors.As(w.err, &undone) && undone.Unrecorded == nil:
		got = "*NotExecutedError"
	case errors.As(w.err, &final) && final.Unrecorded == nil:
		got = "*FinalError"
	case errors.As(w.err, &unknown) && unknown.Unrecorded == nil:
		got = "*UnresolvedError"
	case errors.As(w.err, &refused):
		got = "*Error"
	}
	if got != want {
		w.Errorf("Do returned %s (%+v, %v), want %s", got, w.answer, w.err, want)
	}
}

func (w *walk) mustBeStored(want string) {
	w.Helper()
	want = strings.TrimSuffix(want, ", once it is back")
	if _, last, two := strings.Cut(want, ", then "); two {
		want = last
	}
	state, attempt, _ := strings.Cut(want, ", attempt ")
	var is *idemdv1.Reservation
	harness.Until(w, want, func() bool {
		is = w.direct.lookup(w.T, w.op.Key)
		return is.GetState().String() == "STATE_"+state
	})
	if attempt != "" && fmt.Sprint(is.GetAttempt()) != attempt {
		w.Errorf("stored is %v, want %s", is, want)
	}
}

func (w *walk) nextMustHear(want string) {
	w.Helper()
	token := newToken()
	var answer *idemdv1.ReserveResponse
	harness.Until(w, "an answer to the next caller", func() bool {
		var err error
		if answer, err = w.direct.Reserve(harness.Bounded(w), w.other(token)); err != nil {
			w.Fatal(err)
		}
		return want == "IN_PROGRESS" || answer.GetInProgress() == nil
	})
	replay := answer.GetReplay()
	got := fmt.Sprint(answer)
	switch {
	case answer.GetOwned() != nil:
		got = fmt.Sprintf("OWNED, attempt %d", answer.GetOwned().GetAttempt())
	case replay.GetState() == idemdv1.State_STATE_FAILED_FINAL && string(replay.GetResult().GetBody()) == errDeclined.Error():
		got = "REPLAY of the refusal"
	case replay != nil && replay.GetResult().GetBodyOmitted() && replay.GetResult().GetDecisionId() == "ch_1":
		got = "REPLAY, body omitted"
	case string(replay.GetResult().GetBody()) == "receipt":
		got = "REPLAY"
	case answer.GetInProgress() != nil:
		got = "IN_PROGRESS"
	case answer.GetUnresolved() != nil:
		got = "UNRESOLVED"
	}
	if got != want {
		w.Errorf("the next caller hears %s, want %s", got, want)
	}
}
