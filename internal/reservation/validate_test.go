package reservation

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Bad input of every kind is refused with the documented reason, whatever is stored.
func TestBadInputIsRefusedWithItsReason(t *testing.T) {
	tooBig := Result{Body: make([]byte, MaxBodyBytes+1)}
	cases := map[string]struct {
		cmd    Command
		reason Reason
	}{
		"empty tenant":              {edit(func(c *Reserve) { c.Tenant = "" }), TenantInvalid},
		"tenant of 65":              {edit(func(c *Reserve) { c.Tenant = strings.Repeat("t", 65) }), TenantInvalid},
		"upper case tenant":         {edit(func(c *Reserve) { c.Tenant = "Acme" }), TenantInvalid},
		"tenant with colon":         {edit(func(c *Reserve) { c.Tenant = "a:b" }), TenantInvalid},
		"tenant with NUL":           {edit(func(c *Reserve) { c.Tenant = "a\x00" }), TenantInvalid},
		"empty namespace":           {edit(func(c *Reserve) { c.Namespace = "" }), NamespaceInvalid},
		"namespace with slash":      {edit(func(c *Reserve) { c.Namespace = "a/b" }), NamespaceInvalid},
		"empty key":                 {edit(func(c *Reserve) { c.Key = "" }), KeyInvalid},
		"key of spaces":             {edit(func(c *Reserve) { c.Key = "   " }), KeyInvalid},
		"key of 256":                {edit(func(c *Reserve) { c.Key = strings.Repeat("k", 256) }), KeyInvalid},
		"key of 9000":               {edit(func(c *Reserve) { c.Key = strings.Repeat("k", 9000) }), KeyInvalid},
		"key with 0x00":             {edit(func(c *Reserve) { c.Key = "k\x00" }), KeyInvalid},
		"key with 0xff":             {edit(func(c *Reserve) { c.Key = "k\xff" }), KeyInvalid},
		"key with DEL":              {edit(func(c *Reserve) { c.Key = "k\x7f" }), KeyInvalid},
		"key with tab":              {edit(func(c *Reserve) { c.Key = "k\t" }), KeyInvalid},
		"key with trailing space":   {edit(func(c *Reserve) { c.Key = "k " }), KeyInvalid},
		"key in Cyrillic":           {edit(func(c *Reserve) { c.Key = "\u043f\u043b\u0430\u0442\u0451\u0436-1" }), KeyInvalid},
		"no fingerprint":            {edit(func(c *Reserve) { c.Fingerprint = Fingerprint{} }), FingerprintInvalid},
		"no scheme":                 {edit(func(c *Reserve) { c.Fingerprint.Scheme = "" }), FingerprintInvalid},
		"scheme of 33":              {edit(func(c *Reserve) { c.Fingerprint.Scheme = strings.Repeat("s", 33) }), FingerprintInvalid},
		"digest of 15":              {edit(func(c *Reserve) { c.Fingerprint.Digest = make([]byte, 15) }), FingerprintInvalid},
		"digest of 65":              {edit(func(c *Reserve) { c.Fingerprint.Digest = make([]byte, 65) }), FingerprintInvalid},
		"no token":                  {edit(func(c *Reserve) { c.Token = nil }), TokenInvalid},
		"token of 15":               {edit(func(c *Reserve) { c.Token = make(Token, 15) }), TokenInvalid},
		"token of 33":               {edit(func(c *Reserve) { c.Token = make(Token, 33) }), TokenInvalid},
		"lease of 0":                {edit(func(c *Reserve) { c.Lease = 0 }), DurationOutOfRange},
		"negative lease":            {edit(func(c *Reserve) { c.Lease = -time.Second }), DurationOutOfRange},
		"lease of 1 ns":             {edit(func(c *Reserve) { c.Lease = 1 }), DurationOutOfRange},
		"lease below 100 ms":        {edit(func(c *Reserve) { c.Lease = MinLease - 1 }), DurationOutOfRange},
		"lease above 1 h":           {edit(func(c *Reserve) { c.Lease = MaxLease + 1 }), DurationOutOfRange},
		"retention below 1 s":       {edit(func(c *Reserve) { c.Retention = MinRetention - 1 }), DurationOutOfRange},
		"retention of 292 years":    {edit(func(c *Reserve) { c.Retention = 1<<63 - 1 }), DurationOutOfRange},
		"retention above 400 d":     {edit(func(c *Reserve) { c.Retention = MaxRetention + 1 }), DurationOutOfRange},
		"no lapse policy":           {edit(func(c *Reserve) { c.OnLapse = 0 }), EnumInvalid},
		"unknown lapse policy":      {edit(func(c *Reserve) { c.OnLapse = 3 }), EnumInvalid},
		"0 attempts":                {edit(func(c *Reserve) { c.Attempts = 0 }), DurationOutOfRange},
		"101 attempts":              {edit(func(c *Reserve) { c.Attempts = 101 }), DurationOutOfRange},
		"owner of 129":              {edit(func(c *Reserve) { c.Owner = strings.Repeat("o", 129) }), LabelInvalid},
		"owner with NUL":            {edit(func(c *Reserve) { c.Owner = "a\x00b" }), LabelInvalid},
		"owner with escape":         {edit(func(c *Reserve) { c.Owner = "\x1b[2J" }), LabelInvalid},
		"owner not UTF-8":           {edit(func(c *Reserve) { c.Owner = "\xff" }), LabelInvalid},
		"policy version of 65":      {edit(func(c *Reserve) { c.PolicyVersion = strings.Repeat("v", 65) }), LabelInvalid},
		"first attempt before 1970": {edit(func(c *Reserve) { c.FirstAttemptAt = -1 }), TimeInvalid},
		"first attempt ahead":       {edit(func(c *Reserve) { c.FirstAttemptAt = testStart.Add(MaxClockAhead) + 1 }), TimeInvalid},

		"checkpoint of 16 KiB + 1": {&Extend{Address: testAddress, Token: testToken(1), Lease: testLease, Checkpoint: make([]byte, MaxCheckpointBytes+1)}, CheckpointInvalid},
		"extend without lease":     {&Extend{Address: testAddress, Token: testToken(1)}, DurationOutOfRange},
		"lookup without key":       {&Lookup{Address{Tenant: "a", Namespace: "n"}}, KeyInvalid},

		"body of 1 MiB + 1":               {complete(tooBig), ResultTooLarge},
		"5 MiB body":                      {complete(Result{Body: make([]byte, 5<<20)}), ResultTooLarge},
		"65 headers":                      {complete(Result{Headers: make([]Header, 65)}), ResultTooLarge},
		"headers of 16 KiB + 1":           {complete(Result{Headers: []Header{{Name: "h", Value: make([]byte, MaxHeaderBytes)}}}), ResultTooLarge},
		"header without name":             {complete(Result{Headers: []Header{{}}}), ResultInvalid},
		"header with colon":               {complete(Result{Headers: []Header{{Name: ":path"}}}), ResultInvalid},
		"header with line break":          {complete(Result{Headers: []Header{{Name: "a\r\nb"}}}), ResultInvalid},
		"body beside body_omitted":        {complete(Result{Body: []byte("x"), BodyOmitted: true}), ResultInvalid},
		"body_ref without body_omitted":   {complete(Result{BodyRef: "s3://x"}), ResultInvalid},
		"body_ref of 1,025":               {complete(Result{BodyOmitted: true, BodyRef: strings.Repeat("r", 1025)}), LabelInvalid},
		"decision id of 129":              {complete(Result{DecisionID: strings.Repeat("d", 129)}), LabelInvalid},
		"content type of 256":             {complete(Result{ContentType: strings.Repeat("c", 256)}), ResultInvalid},
		"content type with line break":    {complete(Result{ContentType: "a\nb"}), ResultInvalid},
		"retention of Complete below 1 s": {&Complete{Address: testAddress, Token: testToken(1), Retention: 1}, DurationOutOfRange},

		"fail without kind":    {&Fail{Address: testAddress, Token: testToken(1)}, EnumInvalid},
		"fail as completed":    {&Fail{Address: testAddress, Token: testToken(1), Kind: Completed}, EnumInvalid},
		"fail of unknown kind": {&Fail{Address: testAddress, Token: testToken(1), Kind: 255}, EnumInvalid},
		"negative retry_after": {&Fail{Address: testAddress, Token: testToken(1), Kind: ToldFinal, RetryAfter: -1}, DurationOutOfRange},

		"resolve without verdict":    {&Resolve{Address: testAddress, Reason: "r"}, EnumInvalid},
		"resolve without reason":     {&Resolve{Address: testAddress, Verdict: VerdictNotExecuted}, LabelInvalid},
		"reason of 513":              {&Resolve{Address: testAddress, Verdict: VerdictNotExecuted, Reason: strings.Repeat("r", 513)}, LabelInvalid},
		"evidence of 1,025":          {&Resolve{Address: testAddress, Verdict: VerdictNotExecuted, Reason: "r", Evidence: strings.Repeat("e", 1025)}, LabelInvalid},
		"success without a result":   {&Resolve{Address: testAddress, Verdict: VerdictSucceeded, Reason: "r"}, ResultInvalid},
		"not executed with a result": {&Resolve{Address: testAddress, Verdict: VerdictNotExecuted, Reason: "r", Result: &Result{}}, ResultInvalid},
	}
	records := map[string]*Record{"nothing": nil, "a record": base{Hold, "left"}.record()}
	for name, c := range cases {
		for there, rec := range records {
			next, out := Decide(testStart, rec, c.cmd)
			err, refused := out.(*Error)
			if !refused || err.Reason != c.reason {
				t.Errorf("%s on %s: got %T %v, want %s", name, there, out, out, c.reason)
			}
			if next != rec {
				t.Errorf("%s on %s: something was stored", name, there)
			}
			if refused && len(err.Message) > 300 {
				t.Errorf("%s: the message is %d bytes long", name, len(err.Message))
			}
		}
	}
}

// What is exactly at a limit is allowed.
func TestTheLimitsThemselvesAreAllowed(t *testing.T) {
	for name, cmd := range map[string]Command{
		"longest strings": edit(func(c *Reserve) {
			c.Tenant, c.Namespace, c.Key = strings.Repeat("t", 64), strings.Repeat("n", 64), strings.Repeat("~", 255)
			c.Owner, c.PolicyVersion = strings.Repeat("o", 128), strings.Repeat("v", 64)
			c.Fingerprint = Fingerprint{Scheme: strings.Repeat("s", 32), Digest: make([]byte, 64)}
			c.Token = make(Token, 32)
		}),
		"shortest": edit(func(c *Reserve) {
			c.Tenant, c.Namespace, c.Key = "t", "n", "!"
			c.Fingerprint = Fingerprint{Scheme: "s", Digest: make([]byte, 16)}
			c.Token, c.Lease, c.Retention, c.Attempts = make(Token, 16), MinLease, MinRetention, 1
		}),
		"longest times": edit(func(c *Reserve) { c.Lease, c.Retention, c.Attempts = MaxLease, MaxRetention, MaxAttempts }),
		"largest result": complete(Result{
			Body: make([]byte, MaxBodyBytes), ContentType: strings.Repeat("c", 255), DecisionID: strings.Repeat("d", 128),
			Headers: []Header{{Name: "h", Value: bytes.Repeat([]byte{0}, MaxHeaderBytes-1)}},
		}),
		"people's words": &Resolve{Address: testAddress, Verdict: VerdictNotExecuted, Reason: "line\nbreak\tand \u2713", Evidence: strings.Repeat("e", 1024)},
	} {
		if err := cmd.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func edit(change func(*Reserve)) *Reserve {
	c := testReserve(3)
	change(c)
	return c
}

func complete(r Result) *Complete {
	return &Complete{Address: testAddress, Token: testToken(1), Result: r}
}
