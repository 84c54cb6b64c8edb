package reservation

import (
	"fmt"
	"time"
)

// The times and lengths of the situations. The record under test has had two
// attempts: token 1 is spent, token 2 is current, token 3 strange.
const (
	testStart     = Time(1_700_000_000_000_000)
	testLease     = 30 * time.Second
	testCap       = 60 * time.Second
	testRetention = time.Hour
	testRetry     = 10 * time.Second
	micro         = time.Microsecond
)

var testAddress = Address{Tenant: "acme", Namespace: "payments", Key: "charge-1"}

type testCase struct {
	situation situation
	rec       *Record
	now       Time
	cmd       Command
}

func testToken(n int) Token {
	return Token(fmt.Sprintf("token-%010d", n))
}

func testPrint(n byte) Fingerprint {
	digest := make([]byte, 32)
	digest[0] = n
	return Fingerprint{Scheme: "test-v1", Digest: digest}
}

func testResult(text string) Result { return Result{Status: 200, Body: []byte(text)} }

func testReserve(token int) *Reserve {
	return &Reserve{
		Address: testAddress, Fingerprint: testPrint(1), Token: testToken(token), Lease: testLease, LeaseCap: testCap,
		Retention: testRetention, OnLapse: Hold, Attempts: 3, Owner: fmt.Sprint("caller-", token), PolicyVersion: "v1",
	}
}

// base is a record under way: attempt 2 of 2, 3 or 100, granted at testStart.
type base struct {
	lapse    LapsePolicy
	attempts string // left, used up, all 100 used up
}

func (b base) record() *Record {
	first := testReserve(1)
	first.OnLapse = b.lapse
	if b.attempts == "used up" {
		first.Attempts = 2
	}
	rec, _ := Decide(testStart, nil, first)
	rec, _ = Decide(testStart, rec, &Fail{Address: testAddress, Token: testToken(1), Kind: ToldRetryable, Result: testResult("first")})
	rec, _ = Decide(testStart, rec, testReserve(2))
	if b.attempts == "all 100 used up" {
		exhausted := *rec
		exhausted.Attempt, exhausted.AttemptsAllowed = MaxAttempts, MaxAttempts
		exhausted.Spent = make([]ShortDigest, MaxAttempts-1)
		exhausted.Spent[0] = testToken(1).Digest().Short()
		for i := 1; i < len(exhausted.Spent); i++ {
			exhausted.Spent[i] = ShortDigest{0xee, byte(i)}
		}
		return &exhausted
	}
	return rec
}

// placed is a record and the moments at which it is met, in the words of the tables.
type placed struct {
	rec   *Record
	words situation // State, Came by, Lapse, Attempts
	times []moment
}

type moment struct {
	word  string
	state string // of the tables, if the moment makes another one
	now   Time
}

// placements builds every stored state, with each side of each time boundary.
func placements() []placed {
	var all []placed
	for _, lapse := range []LapsePolicy{Hold, Rerun} {
		for _, attempts := range []string{"left", "used up", "all 100 used up"} {
			all = append(all, base{lapse, attempts}.placements()...)
		}
	}
	return append(all, placed{rec: nil, words: situation{"State": "ABSENT"}, times: []moment{{"any", "", testStart}}})
}

func (b base) placements() []placed {
	rec := b.record()
	var all []placed
	add := func(rec *Record, came string, times []moment) {
		all = append(all, placed{rec: rec, times: times, words: situation{
			"State": rec.State.String(), "Came by": came, "Lapse": b.lapse.String(), "Attempts": b.attempts, "Kept": keptWord(rec),
		}})
	}
	add(rec, "reserved", []moment{
		{"live", "", testStart}, {"live", "", testStart.Add(testLease - micro)},
		{"lapsed", "", testStart.Add(testLease)}, {"lapsed", "", testStart.Add(testCap - micro)},
		{"capped", "", testStart.Add(testCap)},
	})
	for _, end := range b.ends(rec) {
		next, out := Decide(testStart, rec, end.cmd)
		if _, ok := out.(*Recorded); !ok {
			panic(fmt.Sprintf("%T is answered %v", end.cmd, out))
		}
		add(next, end.came, timesOf(next))
		if next.State.Finished() {
			erased, _ := Decide(testStart, next, testErase(0))
			add(erased, end.came, timesOf(erased))
		}
	}
	return all
}

func keptWord(rec *Record) string {
	if rec.ErasedAt != 0 {
		return "erased"
	}
	return "whole"
}

func testErase(version int64) *Erase {
	return &Erase{Address: testAddress, ExpectedVersion: version, Actor: "olga", Reason: "asked to"}
}

type ending struct {
	came string
	cmd  Command
}

func (b base) ends(rec *Record) []ending {
	fail := func(kind OutcomeKind) *Fail {
		return &Fail{Address: testAddress, Token: testToken(2), Kind: kind, Result: testResult("same"), RetryAfter: testRetry}
	}
	resolve := func(verdict Verdict) *Resolve {
		c := &Resolve{Address: testAddress, ExpectedVersion: rec.Version, Verdict: verdict, Actor: "olga", Reason: "r", BreakLease: true}
		if verdict != VerdictNotExecuted {
			result := testResult("same")
			c.Result = &result
		}
		return c
	}
	ends := []ending{
		{"told", &Complete{Address: testAddress, Token: testToken(2), Result: testResult("same")}},
		{"told retryable", fail(ToldRetryable)},
		{"told final", fail(ToldFinal)},
		{"told unknown", fail(ToldUnknown)},
		{"judged", resolve(VerdictSucceeded)},
		{"judged", resolve(VerdictFailedFinal)},
	}
	if b.attempts != "all 100 used up" {
		ends = append(ends, ending{"judged", resolve(VerdictNotExecuted)})
	}
	return ends
}

func timesOf(rec *Record) []moment {
	if rec.State == Unknown {
		return []moment{{"any", "", testStart}, {"any", "", testStart.Add(MaxRetention)}}
	}
	times := []moment{
		{"due", "", rec.ExpiresAt - 1}, {"any", "ABSENT", rec.ExpiresAt}, {"any", "ABSENT", rec.ExpiresAt.Add(MaxRetention)},
		{"due", "", max(rec.RetryAt, rec.FinishedAt)},
	}
	if rec.RetryAt > rec.FinishedAt {
		times = append(times, moment{"before its retry time", "", rec.FinishedAt}, moment{"before its retry time", "", rec.RetryAt - 1})
	}
	return times
}

// allCases is every situation of every table.
func allCases() map[string][]testCase {
	cases := map[string][]testCase{}
	for _, p := range placements() {
		for _, m := range p.times {
			at := situation{"Time": m.word}
			for column, word := range p.words {
				at[column] = word
			}
			if m.state != "" {
				at["State"] = m.state
			}
			for heading, calls := range callsOn(p.rec, m.now) {
				for _, c := range calls {
					full := situation{}
					for _, words := range []situation{at, c.words} {
						for column, word := range words {
							full[column] = word
						}
					}
					cases[heading] = append(cases[heading], testCase{full, p.rec, m.now, c.cmd})
				}
			}
		}
	}
	return cases
}

type testCall struct {
	words situation
	cmd   Command
}

var testTokens = map[string]int{"spent": 1, "current": 2, "strange": 3}

func callsOn(rec *Record, now Time) map[string][]testCall {
	calls := map[string][]testCall{
		"Lookup": {{situation{}, &Lookup{testAddress}}}, "Resolve": resolveCalls(rec), "Erase": eraseCalls(rec),
	}
	for word, n := range testTokens {
		calls["Reserve"] = append(calls["Reserve"], reserveCalls(word, n, now)...)
		calls["Extend"] = append(calls["Extend"], testCall{situation{"Token": word},
			&Extend{Address: testAddress, Token: testToken(n), Lease: 2 * testLease}})
		for _, result := range []string{"same", "other"} {
			calls["Complete"] = append(calls["Complete"], testCall{situation{"Token": word, "Result": result},
				&Complete{Address: testAddress, Token: testToken(n), Result: testResult(result)}})
			for kindWord, kind := range map[string]OutcomeKind{"RETRYABLE": ToldRetryable, "FINAL": ToldFinal, "UNKNOWN": ToldUnknown} {
				calls["Fail"] = append(calls["Fail"], testCall{situation{"Token": word, "Result": result, "Kind": kindWord},
					&Fail{Address: testAddress, Token: testToken(n), Kind: kind, Result: testResult(result), RetryAfter: testRetry}})
			}
		}
	}
	return calls
}

func reserveCalls(word string, token int, now Time) (calls []testCall) {
	for print, fingerprint := range map[string]byte{"same": 1, "other": 2} {
		for first, at := range map[string]Time{
			"not told": 0, "within the retention": now.Add(-testRetention + micro),
			"older than the retention": now.Add(-testRetention), "ahead within 5 minutes": now.Add(MaxClockAhead),
		} {
			c := testReserve(token)
			c.Fingerprint, c.FirstAttemptAt = testPrint(fingerprint), at
			calls = append(calls, testCall{situation{"Token": word, "Fingerprint": print, "First attempt": first}, c})
		}
	}
	return calls
}

func eraseCalls(rec *Record) (calls []testCall) {
	version := int64(8)
	if rec != nil {
		version = rec.Version
	}
	for word, expected := range map[string]int64{"not told": 0, "current": version, "another": version - 1} {
		calls = append(calls, testCall{situation{"Version": word}, testErase(expected)})
	}
	return calls
}

func resolveCalls(rec *Record) (calls []testCall) {
	version := int64(1)
	if rec != nil {
		version = rec.Version
	}
	for word, expected := range map[string]int64{"current": version, "one before": version - 1, "strange": version + 7} {
		for verdictWord, verdict := range map[string]Verdict{
			"SUCCEEDED": VerdictSucceeded, "FAILED_FINAL": VerdictFailedFinal, "NOT_EXECUTED": VerdictNotExecuted,
		} {
			for _, text := range []string{"same", "other"} {
				for breakWord, breaks := range map[string]bool{"yes": true, "no": false} {
					c := &Resolve{Address: testAddress, ExpectedVersion: expected, Verdict: verdict, Actor: "olga", Reason: "r", BreakLease: breaks}
					if verdict != VerdictNotExecuted {
						result := testResult(text)
						c.Result = &result
					}
					calls = append(calls, testCall{situation{"Version": word, "Verdict": verdictWord, "Result": text, "Break lease": breakWord}, c})
				}
			}
		}
	}
	return calls
}
