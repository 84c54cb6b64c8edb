package reservation

import "time"

// The limits that every store, daemon and client shares. Policies may be narrower,
// never wider.
const (
	MinLease     = 100 * time.Millisecond
	DefaultLease = 30 * time.Second
	MaxLease     = time.Hour

	// DefaultLeaseCap bounds what Extend can reach, counted from the grant.
	DefaultLeaseCap = 24 * time.Hour

	MinRetention     = time.Second
	DefaultRetention = 7 * 24 * time.Hour
	MaxRetention     = 400 * 24 * time.Hour

	MaxWait = 50 * time.Second
	// MaxRetryHint bounds the retry hint of IN_PROGRESS while an owner is at work.
	MaxRetryHint = time.Second
	// MaxClockAhead is how far first_attempt_at may lie ahead of the store's clock.
	MaxClockAhead = 5 * time.Minute

	DefaultAttempts = 20
	MaxAttempts     = 100

	MaxTenantBytes    = 64
	MaxNamespaceBytes = 64
	MaxKeyBytes       = 255

	MaxSchemeBytes = 32
	MinDigestBytes = 16
	MaxDigestBytes = 64
	MinTokenBytes  = 16
	MaxTokenBytes  = 32

	MaxOwnerBytes         = 128
	MaxPolicyVersionBytes = 64
	MaxDecisionIDBytes    = 128
	MaxBodyRefBytes       = 1024
	MaxActorBytes         = 256
	MaxReasonBytes        = 512
	MaxEvidenceBytes      = 1024

	MaxBodyBytes        = 1 << 20
	MaxHeaders          = 64
	MaxHeaderBytes      = 16 << 10
	MaxContentTypeBytes = 255
	MaxCheckpointBytes  = 16 << 10

	// MaxHistory bounds takeovers, declared unknowns, verdicts and overturned
	// verdicts; MaxEvidence bounds refused outcomes, which are kept apart so that
	// strangers can't push anything out.
	MaxHistory  = 24
	MaxEvidence = 8
)

// DefaultNamespace is meant by an empty namespace.
const DefaultNamespace = "default"
