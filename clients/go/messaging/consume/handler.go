package consume

import (
	"bytes"
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// call runs a handler on a copy of the message: what it does to that, and whether it
// acknowledges it, changes nothing. A panic is an error.
func call(ctx context.Context, handler message.HandlerFunc, msg *message.Message) error {
	handled := msg.Copy()
	handled.Payload = bytes.Clone(msg.Payload)
	handled.SetContext(ctx)
	return safely(func() error {
		produced, err := handler(handled)
		if err == nil && len(produced) > 0 {
			return errProduced
		}
		return err
	})
}

// traced is the message's context, within the trace of who has sent it. A span that is
// there already has been begun for this delivery, and stays.
func traced(msg *message.Message) context.Context {
	ctx := msg.Context()
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(msg.Metadata))
}
