package grpcserver

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// maxLinks bounds the links of a batch's span to first attempts.
const maxLinks = 32

// traceOf is where a call is traced, if it is: what no sampler took nobody can find again.
func traceOf(ctx context.Context) (kept reservation.TraceContext) {
	at := trace.SpanContextFromContext(ctx)
	if !at.IsSampled() {
		return kept
	}
	traceID, spanID := at.TraceID(), at.SpanID()
	copy(kept[:16], traceID[:])
	copy(kept[16:24], spanID[:])
	kept[24] = byte(at.TraceFlags())
	return kept
}

// linkTo is a link to where a first attempt was traced; false = it was not.
func linkTo(kept reservation.TraceContext) (trace.Link, bool) {
	at := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(kept[:16]), SpanID: trace.SpanID(kept[16:24]), TraceFlags: trace.TraceFlags(kept[24]), Remote: true,
	})
	return trace.Link{SpanContext: at}, at.IsValid()
}

// traced tells a call's span what was decided: never keys, tokens or bodies. Names are
// told only of what was accepted: others may be anything.
func traced(ctx context.Context, command reservation.Command, outcome reservation.Outcome, err error) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	var refusal *reservation.Error
	if errors.As(err, &refusal) {
		span.SetAttributes(attribute.String("idemd.decision", engine.DecisionName(refusal)))
	}
	if err != nil || outcome == nil {
		return
	}
	at := command.Target()
	span.SetAttributes(attribute.String("idemd.decision", engine.DecisionName(outcome)),
		attribute.String("idemd.tenant", at.Tenant), attribute.String("idemd.namespace", at.Namespace))
	if attempt := attemptOf(outcome); attempt > 0 {
		span.SetAttributes(attribute.Int("idemd.attempt", int(attempt)))
	}
	link(span, outcome)
}

// link ties a replay to the first attempt, and tells whether it could.
func link(span trace.Span, outcome reservation.Outcome) bool {
	replay, is := outcome.(*reservation.Replay)
	if !is {
		return false
	}
	to, valid := linkTo(replay.Trace)
	if valid {
		span.AddLink(to)
	}
	return valid
}

// tracedBatch tells a batch's span how large it was, and ties it to first attempts.
func tracedBatch(ctx context.Context, answers []engine.Answer) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.Int("idemd.commands", len(answers)))
	links := 0
	for _, a := range answers {
		if links < maxLinks && a.Err == nil && link(span, a.Outcome) {
			links++
		}
	}
}

func attemptOf(outcome reservation.Outcome) int32 {
	switch o := outcome.(type) {
	case *reservation.Owned:
		return o.Attempt
	case *reservation.InProgress:
		return o.Attempt
	case *reservation.Replay:
		return o.Attempt
	case *reservation.Unresolved:
		return o.Attempt
	}
	return 0
}
