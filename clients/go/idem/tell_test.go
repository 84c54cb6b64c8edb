package idem

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// A caller that hangs up, or whose deadline passes, right after the effect.
func TestAnOutcomeIsToldWhateverBecomesOfItsCaller(t *testing.T) {
	type key struct{}
	slow := func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		if ctx.Value(key{}) != "trace" {
			return nil, errors.New("the context's values are lost")
		}
		if !sleep(ctx, 150*time.Millisecond) {
			return silence(ctx, nil)
		}
		return &idemdv1.CompleteResponse{}, nil
	}
	for name, end := range map[string]time.Duration{"hangs up in fn": 0, "has no time left": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, script{"Complete": {slow}}, Options{}, func(t *testing.T, c *Client, f *fake) {
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "trace"), 300*time.Millisecond)
				defer cancel()
				answer, err := c.Do(ctx, operation(), func(ctx context.Context, _ *Grant) (*Result, error) {
					if end == 0 {
						cancel()
						<-ctx.Done()
						return body("done"), nil
					}
					sleep(ctx, 200*time.Millisecond) // and the answer takes 150 ms
					return body("done"), nil
				})
				if err != nil || answer.Unrecorded != nil || string(answer.Result.GetBody()) != "done" {
					t.Errorf("answered %+v, %v", answer, err)
				}
				if f.sent() != "Reserve Complete" {
					t.Errorf("sent %s", f.sent())
				}
			})
		})
	}
}

func TestAnOutcomeIsToldOnInTheBackground(t *testing.T) {
	var seen events
	began := time.Time{}
	back := func(context.Context, proto.Message) (proto.Message, error) {
		if time.Since(began) < 40*time.Second {
			return nil, away()
		}
		return &idemdv1.CompleteResponse{}, nil
	}
	bubble(t, script{"Complete": {back}}, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, f *fake) {
		began = time.Now()
		answer, err := c.Do(t.Context(), operation(), returns(body("done"), nil))
		if err != nil || answer.Unrecorded == nil || string(answer.Result.GetBody()) != "done" {
			t.Errorf("answered %+v, %v", answer, err)
		}
		answer.Result.Body, answer.Result.Status = []byte("changed"), 500 // its caller's own, now
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("Do took %v, want FinishTimeout", took)
		}
		if err := c.Close(context.Background()); err != nil || time.Since(began) < 40*time.Second || time.Since(began) > 43*time.Second {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
		told := requests[*idemdv1.CompleteRequest](f)
		for _, r := range told {
			if !proto.Equal(r, told[0]) {
				t.Errorf("repeated as %v", r)
			}
		}
		if len(seen.list()) != 0 {
			t.Errorf("hooks %v", seen.list())
		}
	})
}

// A stream that breaks, a proxy that rolls over its authentication, its rate limit: none of
// them says what became of the outcome.
func TestOnlyIdemdsOwnWordEndsTheTellingOfAnOutcome(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Canceled, codes.Internal, codes.Unknown, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented,
		codes.ResourceExhausted, codes.Aborted, codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument,
	} {
		broken := status.Error(code, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM")
		for name, answers := range map[string][]any{
			"once":            {broken, &idemdv1.CompleteResponse{}},
			"after an outage": {away(), away(), away(), broken, &idemdv1.CompleteResponse{}},
			"five times":      {broken, broken, broken, broken, broken, &idemdv1.CompleteResponse{}},
		} {
			var seen events
			bubble(t, script{"Complete": answers}, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, f *fake) {
				if answer, err := c.Do(t.Context(), operation(), returns(body("done"), nil)); err != nil || answer.Unrecorded != nil {
					t.Errorf("%v %s: answered %+v, %v", code, name, answer, err)
				}
				told := requests[*idemdv1.CompleteRequest](f)
				if last := told[len(told)-1].GetResult(); len(told) != len(answers) || string(last.GetBody()) != "done" {
					t.Errorf("%v %s: told %v", code, name, told)
				}
			})
			if len(seen.list()) > 0 {
				t.Errorf("%v %s: hooks %v", code, name, seen.list())
			}
		}
	}
}

func TestAnOutcomeThatAProxyRefusesIsToldOnInTheBackground(t *testing.T) {
	var seen events
	began := time.Time{}
	proxy := func(context.Context, proto.Message) (proto.Message, error) {
		if time.Since(began) < time.Minute {
			return nil, status.Error(codes.Unauthenticated, "the token is being renewed")
		}
		return &idemdv1.CompleteResponse{}, nil
	}
	bubble(t, script{"Complete": {proxy}}, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, _ *fake) {
		began = time.Now()
		answer, err := c.Do(t.Context(), operation(), returns(body("done"), nil))
		if err != nil || answer.Unrecorded == nil || !strings.Contains(answer.Unrecorded.Error(), "being renewed") {
			t.Errorf("answered %+v, %v", answer, err)
		}
		if err := c.Close(context.Background()); err != nil || time.Since(began) < time.Minute || time.Since(began) > 63*time.Second {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
	})
	if len(seen.list()) > 0 {
		t.Errorf("hooks %v", seen.list())
	}
}

func TestTellingIsGivenUpAfterTwoMinutes(t *testing.T) {
	var seen events
	var log bytes.Buffer
	s := script{"Complete": {away()}}
	bubble(t, s, Options{Hooks: seen.hooks(), Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, c *Client, _ *fake) {
		began := time.Now()
		if _, err := c.Do(t.Context(), operation(), returns(body("secret"), nil)); err != nil {
			t.Error(err)
		}
		if err := c.Close(context.Background()); err != nil || time.Since(began) != 130*time.Second {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
	})
	if got := seen.list(); !slices.Equal(got, []string{"Unrecorded"}) {
		t.Errorf("hooks %v", got)
	}
	if text := log.String(); !strings.Contains(text, "charge-42") || strings.Contains(text, "secret") {
		t.Errorf("logged %s", text)
	}
}

func TestAnOutcomeThatIsRefusedForGoodLeavesTheAnswer(t *testing.T) {
	for name, refused := range map[string]error{
		"taken over":      refusal(codes.FailedPrecondition, StaleToken),
		"ended":           refusal(codes.FailedPrecondition, AlreadyFinished),
		"invalid headers": refusal(codes.InvalidArgument, ResultInvalid),
		"unreadable":      refusal(codes.DataLoss, RecordUnreadable),
	} {
		t.Run(name, func(t *testing.T) {
			var seen events
			s := script{"Complete": {refused}, "Fail": {refused}}
			bubble(t, s, Options{Hooks: seen.hooks()}, func(t *testing.T, c *Client, f *fake) {
				began := time.Now()
				answer, err := c.Do(t.Context(), operation(), returns(body("done"), nil))
				if err != nil || string(answer.Result.GetBody()) != "done" || status.Code(answer.Unrecorded) != status.Code(refused) {
					t.Errorf("answered %+v, %v", answer, err)
				}
				if n := len(requests[*idemdv1.FailRequest](f)); n > 0 || time.Since(began) > time.Second {
					t.Errorf("sent %s: a done operation's key must not be released", f.sent())
				}
				var (
					undone  *NotExecutedError
					final   *FinalError
					unknown *UnresolvedError
				)
				if _, err = c.Do(t.Context(), operation(), returns(nil, NotExecuted(errBank))); !errors.As(err, &undone) || undone.Unrecorded == nil {
					t.Errorf("answered %v", err)
				}
				if _, err = c.Do(t.Context(), operation(), returns(nil, Final(errBank))); !errors.As(err, &final) || final.Unrecorded == nil {
					t.Errorf("answered %v", err)
				}
				if _, err = c.Do(t.Context(), operation(), returns(nil, errBank)); !errors.As(err, &unknown) || unknown.Unrecorded == nil {
					t.Errorf("answered %v", err)
				}
			})
			if got := seen.list(); !slices.Equal(got, slices.Repeat([]string{"Unrecorded"}, 4)) {
				t.Errorf("hooks %v", got)
			}
		})
	}
}

func TestWhatIsTooLargeIsLeftOutAndTheFirstCallerHasItAll(t *testing.T) {
	full := func() *Result {
		return &Result{
			Status: 201, Headers: []*Header{{Name: "a", Value: []byte("1")}}, ContentType: "text/plain",
			Body: []byte("long"), DecisionId: "ch_1",
		}
	}
	bodyOut, headersOut, bothOut := full(), full(), full()
	bodyOut.Body, bodyOut.BodyOmitted = nil, true
	headersOut.Headers = nil
	bothOut.Body, bothOut.BodyOmitted, bothOut.Headers = nil, true, nil
	grpcs := status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (4194400 vs. 4194304)")
	for name, c := range map[string]struct {
		answers []any
		stored  *Result // nil: nothing
	}{
		"body":             {[]any{tooLargeIn("result.body"), &idemdv1.CompleteResponse{}}, bodyOut},
		"headers":          {[]any{tooLargeIn("result.headers"), &idemdv1.CompleteResponse{}}, headersOut},
		"body and headers": {[]any{tooLargeIn("result.body"), tooLargeIn("result.headers"), &idemdv1.CompleteResponse{}}, bothOut},
		"gRPC's limit":     {[]any{grpcs, grpcs, &idemdv1.CompleteResponse{}}, bothOut},
		"a limit of none":  {[]any{grpcs}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var seen events
			bubble(t, script{"Complete": c.answers}, Options{Hooks: seen.hooks()}, func(t *testing.T, client *Client, f *fake) {
				answer, err := client.Do(t.Context(), operation(), returns(full(), nil))
				if err != nil || !proto.Equal(answer.Result, full()) || (answer.Unrecorded == nil) != (c.stored != nil) {
					t.Errorf("answered %+v, %v", answer, err)
				}
				told := requests[*idemdv1.CompleteRequest](f)
				if last := told[len(told)-1].GetResult(); c.stored != nil && !proto.Equal(last, c.stored) {
					t.Errorf("stored %v", last)
				}
				if len(requests[*idemdv1.FailRequest](f)) > 0 {
					t.Errorf("sent %s", f.sent())
				}
			})
			if got := seen.list(); !slices.Contains(got, "Reduced") && name != "a limit of none" || slices.Contains(got, "Unrecorded") != (c.stored == nil) {
				t.Errorf("hooks %v", got)
			}
		})
	}
}

// A proxy that says RESOURCE_EXHAUSTED may mean its rate limit, or the size.
func TestALimitOnTheWayCostsOnlyABodyThatCouldNotBeKeptAnyway(t *testing.T) {
	for size, kept := range map[int]bool{1: true, MaxBodyBytes: true, MaxBodyBytes + 1: false} {
		s := script{"Complete": {status.Error(codes.ResourceExhausted, "a proxy's word"), &idemdv1.CompleteResponse{}}}
		bubble(t, s, Options{}, func(t *testing.T, c *Client, f *fake) {
			answer, err := c.Do(t.Context(), operation(), returns(&Result{Body: make([]byte, size)}, nil))
			if err != nil || answer.Unrecorded != nil || len(answer.Result.GetBody()) != size {
				t.Errorf("%d bytes: answered %v, %v", size, answer.Unrecorded, err)
			}
			if told := requests[*idemdv1.CompleteRequest](f)[1].GetResult(); told.GetBodyOmitted() == kept {
				t.Errorf("%d bytes: omitted %v", size, told.GetBodyOmitted())
			}
		})
	}
}

func TestWhatIsInvalidInAResultIsLeftOutForTheOperationIsDone(t *testing.T) {
	full := func() *Result {
		return &Result{
			Status: 201, Headers: []*Header{{Name: "not a token"}}, ContentType: "text/plain", Body: []byte("receipt"), DecisionId: "ch 1",
		}
	}
	invalidIn := func(reason Reason, field string) error { return refusalIn(field, codes.InvalidArgument, reason) }
	for name, c := range map[string]struct {
		refusal error
		spoil   func(*Result)
		without func(*Result)
	}{
		"headers":      {invalidIn(ResultInvalid, "result.headers"), nil, func(r *Result) { r.Headers = nil }},
		"content type": {invalidIn(ResultInvalid, "result.content_type"), nil, func(r *Result) { r.ContentType = "" }},
		"decision id":  {invalidIn(LabelInvalid, "result.decision_id"), nil, func(r *Result) { r.DecisionId = "" }},
		"body ref":     {invalidIn(ResultInvalid, "result.body_ref"), func(r *Result) { r.BodyRef = "s3" }, func(r *Result) { r.BodyRef = "" }},
		"no UTF-8": {
			nil, // gRPC would not send it
			func(r *Result) { r.ContentType, r.Headers[0].Name = "text/\xff", "\xff" },
			func(r *Result) { r.ContentType, r.Headers = "", nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			answers := []any{&idemdv1.CompleteResponse{}}
			if c.refusal != nil {
				answers = []any{c.refusal, &idemdv1.CompleteResponse{}}
			}
			bubble(t, script{"Complete": answers}, Options{}, func(t *testing.T, client *Client, f *fake) {
				given, stored := full(), full()
				if c.spoil != nil {
					c.spoil(given)
					c.spoil(stored)
				}
				c.without(stored)
				answer, err := client.Do(t.Context(), operation(), returns(given, nil))
				if err != nil || answer.Unrecorded != nil || string(answer.Result.GetBody()) != "receipt" {
					t.Errorf("answered %+v, %v", answer, err)
				}
				told := requests[*idemdv1.CompleteRequest](f)
				if last := told[len(told)-1].GetResult(); !proto.Equal(last, stored) {
					t.Errorf("stored %v, want %v", last, stored)
				}
			})
		})
	}
}

func TestNoResultIsAnEmptyOne(t *testing.T) {
	bubble(t, nil, Options{}, func(t *testing.T, c *Client, _ *fake) {
		answer, err := c.Do(t.Context(), operation(), returns(nil, nil))
		if err != nil || answer.Result == nil || answer.Result.GetBody() != nil {
			t.Errorf("answered %+v, %v", answer, err)
		}
	})
}
