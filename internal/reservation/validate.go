package reservation

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Validate implements Command.
func (c *Reserve) Validate() *Error {
	return first(
		c.Address.Validate(),
		c.Fingerprint.validate(),
		c.Token.validate(),
		CheckDuration("lease", c.Lease, MinLease, MaxLease),
		checkPositive("lease_cap", c.LeaseCap),
		CheckDuration("retention", c.Retention, MinRetention, MaxRetention),
		c.OnLapse.validate(),
		checkAttempts(c.Attempts),
		checkLabel("owner", c.Owner, MaxOwnerBytes),
		checkLabel("policy_version", c.PolicyVersion, MaxPolicyVersionBytes),
		checkTime("first_attempt_at", c.FirstAttemptAt),
	)
}

// Validate implements Command.
func (c *Extend) Validate() *Error {
	return first(
		c.Address.Validate(),
		c.Token.validate(),
		CheckDuration("lease", c.Lease, MinLease, MaxLease),
		checkCheckpoint(c.Checkpoint),
	)
}

// Validate implements Command.
func (c *Complete) Validate() *Error {
	return first(
		c.Address.Validate(),
		c.Token.validate(),
		c.Result.validate(),
		checkRetention(c.Retention),
		checkBodyRetention(c.BodyRetention),
	)
}

// Validate implements Command.
func (c *Fail) Validate() *Error {
	return first(
		c.Address.Validate(),
		c.Token.validate(),
		checkFailure(c.Kind),
		c.Result.validate(),
		CheckDuration("retry_after", c.RetryAfter, 0, MaxRetention),
		checkRetention(c.Retention),
		checkBodyRetention(c.BodyRetention),
	)
}

// Validate implements Command.
func (c *Resolve) Validate() *Error {
	return first(
		c.Address.Validate(),
		c.checkVerdict(),
		c.Result.validate(),
		checkLabel("actor", c.Actor, MaxActorBytes),
		checkText("reason", c.Reason, 1, MaxReasonBytes),
		checkText("evidence", c.Evidence, 0, MaxEvidenceBytes),
		checkBodyRetention(c.BodyRetention),
	)
}

// Validate implements Command.
func (c *Erase) Validate() *Error {
	return first(
		c.Address.Validate(),
		checkExpectedVersion(c.ExpectedVersion),
		checkLabel("actor", c.Actor, MaxActorBytes),
		checkText("reason", c.Reason, 1, MaxReasonBytes),
	)
}

// Validate implements Command.
func (c *Lookup) Validate() *Error { return c.Address.Validate() }

// Validate checks tenant, namespace and key.
func (a Address) Validate() *Error {
	return first(
		checkName(TenantInvalid, "tenant", a.Tenant, MaxTenantBytes),
		checkName(NamespaceInvalid, "namespace", a.Namespace, MaxNamespaceBytes),
		checkKey(a.Key),
	)
}

// CheckWait checks how long a call may be held.
func CheckWait(d time.Duration) *Error { return CheckDuration("wait", d, 0, MaxWait) }

// CheckDuration checks a duration against its limits.
func CheckDuration(field string, d, least, most time.Duration) *Error {
	if d < least || d > most {
		return Errorf(DurationOutOfRange, field, "%s must be from %v to %v", field, least, most)
	}
	return nil
}

func checkPositive(field string, d time.Duration) *Error {
	if d <= 0 {
		return Errorf(DurationOutOfRange, field, "%s must be positive", field)
	}
	return nil
}

// checkRetention allows zero, which means what Reserve asked for.
func checkRetention(d time.Duration) *Error {
	if d == 0 {
		return nil
	}
	return CheckDuration("retention", d, MinRetention, MaxRetention)
}

func checkBodyRetention(d time.Duration) *Error {
	return CheckDuration("body_retention", d, 0, MaxRetention)
}

func checkExpectedVersion(version int64) *Error {
	if version < 0 {
		return Errorf(DurationOutOfRange, "expected_version", "expected_version must not be negative; 0 = any")
	}
	return nil
}

func checkTime(field string, t Time) *Error {
	if t < 0 {
		return Errorf(TimeInvalid, field, "%s must not lie before 1970", field)
	}
	return nil
}

func checkAttempts(n int32) *Error {
	if n < 1 || n > MaxAttempts {
		return Errorf(DurationOutOfRange, "attempts", "attempts must be from 1 to %d", MaxAttempts)
	}
	return nil
}

func checkKey(key string) *Error {
	if key == "" || len(key) > MaxKeyBytes || strings.ContainsFunc(key, notKeyRune) {
		return Errorf(KeyInvalid, "key", "key must be 1 to %d bytes of printable ASCII without spaces", MaxKeyBytes)
	}
	return nil
}

func notKeyRune(r rune) bool { return r <= ' ' || r >= 0x7f }

func checkName(reason Reason, field, s string, most int) *Error {
	if s == "" || len(s) > most || strings.ContainsFunc(s, notNameRune) {
		return Errorf(reason, field, "%s must be 1 to %d bytes of a-z 0-9 . _ -", field, most)
	}
	return nil
}

func notNameRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
}

func (f Fingerprint) validate() *Error {
	if err := checkName(FingerprintInvalid, "fingerprint.scheme", f.Scheme, MaxSchemeBytes); err != nil {
		return err
	}
	if len(f.Digest) < MinDigestBytes || len(f.Digest) > MaxDigestBytes {
		return Errorf(FingerprintInvalid, "fingerprint.digest",
			"fingerprint.digest must be %d to %d bytes", MinDigestBytes, MaxDigestBytes)
	}
	return nil
}

func (t Token) validate() *Error {
	if len(t) < MinTokenBytes || len(t) > MaxTokenBytes {
		return Errorf(TokenInvalid, "owner_token", "owner_token must be %d to %d random bytes", MinTokenBytes, MaxTokenBytes)
	}
	return nil
}

func (p LapsePolicy) validate() *Error {
	if p != Hold && p != Rerun {
		return Errorf(EnumInvalid, "on_lapse", "on_lapse must be HOLD or RERUN")
	}
	return nil
}

func checkFailure(kind OutcomeKind) *Error {
	if kind != ToldRetryable && kind != ToldFinal && kind != ToldUnknown {
		return Errorf(EnumInvalid, "kind", "kind must be RETRYABLE, FINAL or UNKNOWN")
	}
	return nil
}

func (c *Resolve) checkVerdict() *Error {
	switch {
	case c.Verdict.State() == Absent:
		return Errorf(EnumInvalid, "verdict", "verdict must be SUCCEEDED, FAILED_FINAL or NOT_EXECUTED")
	case c.Verdict == VerdictNotExecuted && c.Result != nil:
		return Errorf(ResultInvalid, "result", "the verdict NOT_EXECUTED takes no result")
	case c.Verdict != VerdictNotExecuted && c.Result == nil:
		return Errorf(ResultInvalid, "result", "the verdict %s needs the result that is replayed", c.Verdict)
	}
	return nil
}

func checkCheckpoint(checkpoint []byte) *Error {
	if len(checkpoint) > MaxCheckpointBytes {
		return Errorf(CheckpointInvalid, "checkpoint", "checkpoint must be at most %d bytes", MaxCheckpointBytes)
	}
	return nil
}

func (r *Result) validate() *Error {
	if r == nil {
		return nil
	}
	return first(
		r.checkBody(),
		r.checkHeaders(),
		r.checkContentType(),
		checkLabel("result.body_ref", r.BodyRef, MaxBodyRefBytes),
		checkLabel("result.decision_id", r.DecisionID, MaxDecisionIDBytes),
	)
}

func (r *Result) checkBody() *Error {
	switch {
	case len(r.Body) > MaxBodyBytes:
		return Errorf(ResultTooLarge, "result.body",
			"result.body has %d bytes, at most %d are kept; complete with body_omitted instead: the operation is done and must not run again",
			len(r.Body), MaxBodyBytes)
	case r.BodyOmitted && len(r.Body) > 0:
		return Errorf(ResultInvalid, "result.body", "result.body must be empty with body_omitted")
	case r.BodyRef != "" && !r.BodyOmitted:
		return Errorf(ResultInvalid, "result.body_ref", "result.body_ref goes with body_omitted only")
	}
	return nil
}

func (r *Result) checkHeaders() *Error {
	if len(r.Headers) > MaxHeaders {
		return Errorf(ResultTooLarge, "result.headers", "result.headers has %d entries, at most %d are kept", len(r.Headers), MaxHeaders)
	}
	size := 0
	for _, h := range r.Headers {
		if h.Name == "" || strings.ContainsFunc(h.Name, notTokenRune) {
			return Errorf(ResultInvalid, "result.headers", "a header's name must be an RFC 9110 token")
		}
		size += len(h.Name) + len(h.Value)
	}
	if size > MaxHeaderBytes {
		return Errorf(ResultTooLarge, "result.headers", "result.headers has %d bytes, at most %d are kept", size, MaxHeaderBytes)
	}
	return nil
}

// notTokenRune finds what RFC 9110 section 5.6.2 does not allow in a token.
func notTokenRune(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

func (r *Result) checkContentType() *Error {
	if len(r.ContentType) > MaxContentTypeBytes ||
		strings.ContainsFunc(r.ContentType, func(c rune) bool { return c < ' ' || c >= 0x7f }) {
		return Errorf(ResultInvalid, "result.content_type", "result.content_type must be at most %d bytes of printable ASCII", MaxContentTypeBytes)
	}
	return nil
}

func checkLabel(field, s string, most int) *Error {
	if len(s) > most || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return Errorf(LabelInvalid, field, "%s must be at most %d bytes of UTF-8 without control characters", field, most)
	}
	return nil
}

// checkText is for what people write: line breaks and tabs are allowed.
func checkText(field, s string, least, most int) *Error {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if len(s) < least || len(s) > most || !utf8.ValidString(s) || strings.ContainsFunc(s, control) {
		return Errorf(LabelInvalid, field, "%s must be %d to %d bytes of UTF-8 without control characters", field, least, most)
	}
	return nil
}

func first(errs ...*Error) *Error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
