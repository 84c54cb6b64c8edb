package inbox

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits, in bytes.
const (
	MaxConsumerBytes = 128
	MaxIDBytes       = 255
	MaxResultBytes   = 1 << 20
)

// Message says what is to count once.
type Message struct {
	// Consumer names who handles it: each consumer's marks are its own. 1-128 bytes.
	Consumer string
	// ID is the message's: the same on every delivery of it. 1-255 bytes.
	ID string
	// Business names what the message is about (a payment, an order), where two messages
	// about it must count once: at most 255 bytes. Empty = the message alone counts.
	Business string
}

// InvalidError says that a message has an identity that can't be stored. Another delivery
// of it will have the same.
type InvalidError struct{ Field, Problem string }

// Error implements error.
func (e *InvalidError) Error() string { return "inbox: " + e.Field + ": " + e.Problem }

// Check is nil, or the *InvalidError with which Once would refuse the message.
func (m Message) Check() error {
	for _, f := range []struct {
		name, value string
		least, most int
	}{
		{"consumer", m.Consumer, 1, MaxConsumerBytes},
		{"message id", m.ID, 1, MaxIDBytes},
		{"business identity", m.Business, 0, MaxIDBytes},
	} {
		switch {
		case len(f.value) < f.least || len(f.value) > f.most:
			return &InvalidError{f.name, fmt.Sprintf("%d bytes; %d to %d are allowed", len(f.value), f.least, f.most)}
		case !utf8.ValidString(f.value) || strings.ContainsRune(f.value, 0):
			return &InvalidError{f.name, "not UTF-8, or with a zero byte in it"}
		}
	}
	return nil
}
