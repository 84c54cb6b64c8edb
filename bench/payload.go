package main

import (
	"bytes"
	"time"
)

// What every contender is given, so that messages and rows have the same sizes.
const (
	tenant        = "acme"
	namespace     = "payments"
	policyVersion = "2026-11"
	owner         = "checkout-7f9c"
	contentType   = "application/json"
	decisionID    = "ch_3Q9xY2eZvKYlo2C1"
	status        = 201

	lease     = 30 * time.Second
	retention = 7 * 24 * time.Hour
)

func fingerprint() []byte { return bytes.Repeat([]byte{0x5a}, 32) }

// body is the result of an operation: 256 bytes.
func body() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 16) }
