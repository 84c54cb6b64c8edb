package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/propagation"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

// outcome is what became of one event in a round.
type outcome struct {
	// begun and ended are zero where it was not sent at all; ended alone where its sending
	// goes on, and its outcome will be late.
	begun, ended time.Time
	err          error
	// hangs: Publish has not returned.
	hangs bool
}

func (o *outcome) acknowledged() bool { return !o.ended.IsZero() && o.err == nil }

// underWay: it will be among the late ones.
func (o *outcome) underWay() bool { return !o.begun.IsZero() && o.ended.IsZero() }

// errHangs is the outcome of a Publish that does not return.
var errHangs = errors.New("no answer within SendTimeout")

// sender sends the events of batches. It outlives rounds, for what hangs and what is late
// does, too.
type sender struct {
	config Config
	// hanging is how many Publishes have been given up and go on.
	hanging atomic.Int64
	late    late
}

// send sends a batch: lane by lane, each lane's events one after the other. It returns when
// nothing is under way but what is slow, whose outcomes are late, and what hangs.
func (s *sender) send(ctx context.Context, c claimed, lanes [][]int, cautious bool) []outcome {
	f := s.newFlight(c, lanes, cautious)
	var workers sync.WaitGroup
	for range min(f.workers, len(lanes)) {
		workers.Go(func() { f.work(ctx) })
	}
	landed := make(chan struct{})
	go func() {
		workers.Wait()
		close(landed)
	}()
	patience := time.NewTicker(slow)
	defer patience.Stop()
	for {
		select {
		case <-landed:
			return f.outcomes
		case <-patience.C:
			if outcomes, left := f.leave(); left {
				return outcomes
			}
		}
	}
}

// stuck: as many hang as may.
func (s *sender) stuck() bool { return s.hanging.Load() >= int64(s.config.Workers) }

// one sends an event. Publish runs in a goroutine of its own, because not every publisher
// heeds the context of its messages.
func (s *sender) one(ctx context.Context, e *event) (o outcome) {
	// What has begun is waited for when the relay is to stop: else it would be sent again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.SendTimeout)
	done := make(chan error, 1)
	var state atomic.Int32 // 1 = returned, 2 = given up: whoever comes first
	o.begun = time.Now()
	go func() {
		defer cancel()
		err := s.publish(ctx, e.Event, e.damaged)
		if !state.CompareAndSwap(0, 1) {
			s.hanging.Add(-1)
		}
		done <- err
	}()
	timer := time.NewTimer(s.config.SendTimeout)
	defer timer.Stop()
	select {
	case o.err = <-done:
	case <-timer.C:
		if state.CompareAndSwap(0, 2) {
			s.hanging.Add(1)
			o.err, o.hangs = errHangs, true
		} else {
			o.err = <-done
		}
	}
	o.ended = time.Now()
	return o
}

// publish calls the Publisher. One that panics fails this event and not the relay.
func (s *sender) publish(ctx context.Context, e outbox.Event, damaged bool) (err error) {
	if damaged {
		return errDamaged
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the publisher panicked with a %T", v)
		}
	}()
	return s.config.Publisher.Publish(s.config.Topic(e), newMessage(ctx, e))
}

// errDamaged is the outcome of a row that Add can't have written.
var errDamaged = errors.New("the headers are not an object of strings")

// newMessage is an event as consumers get it. Its context is part of the trace in its
// headers.
func newMessage(ctx context.Context, e outbox.Event) *message.Message {
	m := message.NewMessage(e.ID, e.Payload)
	for name, value := range e.Headers {
		m.Metadata[name] = value
	}
	m.Metadata[outbox.AggregateTypeHeader], m.Metadata[outbox.AggregateIDHeader] = e.AggregateType, e.AggregateID
	m.Metadata[outbox.TypeHeader] = e.Type
	m.SetContext(propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(e.Headers)))
	return m
}

// lanes are the indexes of events that must be sent one after the other.
func lanes(events []event, order outbox.Order) (all [][]int) {
	at := map[aggregate]int{}
	for i, e := range events {
		a := aggregate{e.AggregateType, e.AggregateID}
		n, has := at[a]
		if !has || order == outbox.None {
			n, at[a] = len(all), len(all)
			all = append(all, nil)
		}
		all[n] = append(all[n], i)
	}
	return all
}
