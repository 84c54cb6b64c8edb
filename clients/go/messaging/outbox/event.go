package outbox

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of Add.
const (
	MaxEvents             = 1000     // in one call
	MaxCallBytes          = 16 << 20 // payloads of one call
	MaxPayloadBytes       = 1 << 20  // what brokers take by default
	MaxHeaders            = 64
	MaxHeaderBytes        = 16 << 10 // names and values together
	MaxAggregateTypeBytes = 200      // it is part of the topic, which Kafka bounds to 249
	MaxNameBytes          = 255      // of AggregateID and Type
)

// Metadata that a relay adds to an event's headers. An event's own can't have these names.
const (
	AggregateTypeHeader = "aggregate_type"
	AggregateIDHeader   = "aggregate_id"
	TypeHeader          = "event_type"
)

// Event is something that happened, to be told to others.
type Event struct {
	// ID is a UUID in lower case: the message's, by which consumers tell copies. Empty = a
	// new one of version 7.
	ID string
	// AggregateType groups what events are about, such as "order": 1-200 of A-Z a-z 0-9 _ -,
	// with single dots between them. The topic is made of it.
	AggregateType string
	// AggregateID names the one thing that the event is about: 1-255 bytes of UTF-8 without
	// control characters.
	AggregateID string
	// Type says what happened, such as "OrderPlaced": as AggregateID.
	Type string
	// Payload is sent as it is: at most 1 MiB.
	Payload []byte
	// Headers go with it: at most 64, 16 KiB together. Names are tokens of RFC 9110, values
	// UTF-8 without control characters. Names that brokers and consumers go by (Nats-…,
	// _watermill…, idem_…) are refused: copied from a request, they could make the broker drop
	// the message, or a consumer take it for another.
	Headers map[string]string
}

// InvalidError says that an event can't be added as it is. Nothing was written.
type InvalidError struct{ Field, Problem string }

// Error implements error.
func (e *InvalidError) Error() string { return "outbox: " + e.Field + ": " + e.Problem }

// check is nil or an *InvalidError.
func (e Event) check() error {
	switch {
	case !isUUID(e.ID):
		return &InvalidError{"id", "not a UUID in lower case"}
	case !isTopic(e.AggregateType):
		return &InvalidError{"aggregate type", fmt.Sprintf("1 to %d of A-Z a-z 0-9 _ -, with single dots between them", MaxAggregateTypeBytes)}
	case !plain(e.AggregateID, 1, MaxNameBytes):
		return &InvalidError{"aggregate id", fmt.Sprintf("1 to %d bytes of UTF-8 without control characters", MaxNameBytes)}
	case !plain(e.Type, 1, MaxNameBytes):
		return &InvalidError{"type", fmt.Sprintf("1 to %d bytes of UTF-8 without control characters", MaxNameBytes)}
	case len(e.Payload) > MaxPayloadBytes:
		return &InvalidError{"payload", fmt.Sprintf("%d bytes; at most %d", len(e.Payload), MaxPayloadBytes)}
	}
	return checkHeaders(e.Headers)
}

func checkHeaders(headers map[string]string) error {
	if len(headers) > MaxHeaders {
		return &InvalidError{"headers", fmt.Sprintf("%d; at most %d", len(headers), MaxHeaders)}
	}
	size := 0
	for name, value := range headers {
		size += len(name) + len(value)
		switch {
		case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r) }):
			return &InvalidError{"headers", "a name is not a token of RFC 9110"}
		case steers(name):
			return &InvalidError{"headers", name + " is what brokers or consumers go by"}
		case name == AggregateTypeHeader || name == AggregateIDHeader || name == TypeHeader:
			return &InvalidError{"headers", name + " is the relay's"}
		case !plain(value, 0, MaxHeaderBytes):
			return &InvalidError{"headers", "the value of " + name + " is not UTF-8 without control characters"}
		}
	}
	if size > MaxHeaderBytes {
		return &InvalidError{"headers", fmt.Sprintf("%d bytes; at most %d", size, MaxHeaderBytes)}
	}
	return nil
}

// steers: a header of this name changes what becomes of the message.
func steers(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "nats-") || strings.HasPrefix(name, "_watermill") || strings.HasPrefix(name, "idem_")
}

func plain(s string, least, most int) bool {
	return len(s) >= least && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, r := range s {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (r == '-') || !dash && !strings.ContainsRune("0123456789abcdef", r) {
			return false
		}
	}
	return true
}

// isTopic: the name can stand in a topic of Kafka and in a subject of NATS.
func isTopic(s string) bool {
	if len(s) > MaxAggregateTypeBytes {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || strings.ContainsFunc(part, func(r rune) bool { return !isAlphanumeric(r) && r != '_' && r != '-' }) {
			return false
		}
	}
	return true
}

func isAlphanumeric(r rune) bool {
	return '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
}
