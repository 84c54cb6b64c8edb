package consume_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
	"github.com/idemd/idemd/clients/go/messaging/consume"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// office is a mailer in front of a daemon.
type office struct {
	*testing.T
	daemon *fakedaemon.Daemon
	client *idem.Client
	shelf  *shelf
	sent   int
}

func newOffice(t *testing.T) *office {
	t.Helper()
	daemon := fakedaemon.New()
	client := idem.New(daemon, idem.Options{Tenant: "shop", Namespace: "mails", Patience: 50 * time.Millisecond})
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what is still being withdrawn is cut off
		_ = client.Close(ctx)
	})
	return &office{t, daemon, client, &shelf{}, 0}
}

func (f *office) options() consume.Options {
	return consume.Options{
		Consumer: "mailer", Publisher: f.shelf, DeadLetter: "dead", Unresolved: "unresolved", Operation: idem.Operation{Wait: -1},
	}
}

// deliver hands a message to a handler that ends so.
func (f *office) deliver(o consume.Options, msg *message.Message, ending error) error {
	f.Helper()
	middleware, err := consume.Idem(f.client, o)
	if err != nil {
		f.Fatal(err)
	}
	_, err = middleware(func(msg *message.Message) ([]*message.Message, error) {
		f.sent++
		if _, is := idem.GrantFrom(msg.Context()); !is {
			f.Error("there is no grant in the context")
		}
		if panics, is := ending.(panicking); is { //nolint:errorlint // it is the test's own
			panic(string(panics))
		}
		return nil, ending
	})(msg)
	return err
}

type panicking string

func (p panicking) Error() string { return string(p) }

func (f *office) mustBe(sent, dead, unresolved int) {
	f.Helper()
	if f.sent != sent || len(f.shelf.of("dead")) != dead || len(f.shelf.of("unresolved")) != unresolved {
		f.Errorf("%d mails, %d dead letters, %d unresolved; want %d, %d, %d", f.sent, len(f.shelf.of("dead")), len(f.shelf.of("unresolved")), sent, dead, unresolved)
	}
}

func TestThroughIdemdAMessageIsHandledOnceAndItsCopiesAreAcknowledged(t *testing.T) {
	f := newOffice(t)
	for range 3 {
		if err := f.deliver(f.options(), delivery("m1"), nil); err != nil {
			t.Error(err)
		}
	}
	f.mustBe(1, 0, 0)
	if is := f.daemon.Record("shop", "mails", "mailer/message/m1"); is.GetState() != idemdv1.State_STATE_SUCCEEDED || is.GetOnLapse() != idemdv1.LapsePolicy_LAPSE_POLICY_HOLD {
		t.Errorf("stored is %v", is)
	}
	// Another consumer in the same namespace handles it, too.
	o := f.options()
	o.Consumer = "archive"
	if err := f.deliver(o, delivery("m1"), nil); err != nil {
		t.Error(err)
	}
	f.mustBe(2, 0, 0)
}

func TestThroughIdemdTwoMessagesAboutOnePaymentAreHandledOnceThoughTheirPayloadsDiffer(t *testing.T) {
	f := newOffice(t)
	o := f.options()
	o.Business = func(*message.Message) (string, error) { return "payment-1", nil }
	for _, id := range []string{"m1", "m2"} {
		if err := f.deliver(o, delivery(id), nil); err != nil {
			t.Error(err)
		}
	}
	f.mustBe(1, 0, 0)
	if f.daemon.Record("shop", "mails", "mailer/business/payment-1") == nil {
		t.Error("the key is another one")
	}
}

func TestAMessageIdWithAnotherPayloadIsADeadLetter(t *testing.T) {
	f := newOffice(t)
	other := delivery("m1")
	other.Payload = []byte("something else")
	for _, msg := range []*message.Message{delivery("m1"), other} {
		if err := f.deliver(f.options(), msg, nil); err != nil {
			t.Error(err)
		}
	}
	f.mustBe(1, 1, 0)
	if letter := f.shelf.of("dead")[0]; !strings.Contains(letter.Metadata[consume.ReasonKey], "FINGERPRINT_MISMATCH") || string(letter.Payload) != "something else" {
		t.Errorf("the letter is %q, %v", letter.Payload, letter.Metadata)
	}
	// Unless it is said what counts.
	f = newOffice(t)
	o := f.options()
	o.Fingerprint = func(msg *message.Message) idem.Fingerprint {
		return idem.SHA256("kind-v1", []byte(msg.Metadata["kind"]))
	}
	for _, msg := range []*message.Message{delivery("m1"), other} {
		if err := f.deliver(o, msg, nil); err != nil {
			t.Error(err)
		}
	}
	f.mustBe(1, 0, 0)
}

func TestWhatBecomesOfAMessageThatIsNotDone(t *testing.T) {
	declined := errors.New("declined")
	for name, c := range map[string]struct {
		mode   idem.Mode
		ending error
		// acknowledged at its first and at its second delivery; where it is after both.
		first, second          bool
		sent, dead, unresolved int
	}{
		"refused for good":               {idem.External, idem.Final(declined), true, true, 1, 2, 0},
		"not executed":                   {idem.External, idem.NotExecuted(declined), false, false, 2, 0, 0},
		"an undeclared error":            {idem.External, declined, true, true, 1, 0, 2},
		"a panic":                        {idem.External, panicking("at the disco"), true, true, 1, 0, 2},
		"unknown":                        {idem.External, idem.Unknown(declined), true, true, 1, 0, 2},
		"not executed, safe to repeat":   {idem.Transactional, idem.NotExecuted(declined), false, false, 2, 0, 0},
		"an error, safe to repeat":       {idem.Transactional, declined, false, false, 2, 0, 0},
		"a panic, safe to repeat":        {idem.Transactional, panicking("at the disco"), false, false, 2, 0, 0},
		"unknown, safe to repeat":        {idem.Transactional, idem.Unknown(declined), false, false, 2, 0, 0},
		"the error of another operation": {idem.External, &idem.Error{Reason: idem.FingerprintMismatch}, true, true, 1, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOffice(t)
			o := f.options()
			o.Operation.Mode = c.mode
			for i, acknowledged := range []bool{c.first, c.second} {
				if err := f.deliver(o, delivery("m1"), c.ending); (err == nil) != acknowledged {
					t.Errorf("delivery %d: %v", i+1, err)
				}
			}
			f.mustBe(c.sent, c.dead, c.unresolved)
			for _, letter := range append(f.shelf.of("dead"), f.shelf.of("unresolved")...) {
				if m := letter.Metadata; m[consume.ReasonKey] == "" || m[consume.ConsumerKey] != "mailer" || m[consume.AttemptsKey] != "1" || m["kind"] != "order.placed" {
					t.Errorf("it says %v", m)
				}
			}
		})
	}
}

func TestAnUnresolvedMessageSaysWhatAnOperatorNeedsToResolveIt(t *testing.T) {
	f := newOffice(t)
	if err := f.deliver(f.options(), delivery("m1"), errors.New("no answer")); err != nil {
		t.Fatal(err)
	}
	if err := f.deliver(f.options(), delivery("m1"), nil); err != nil {
		t.Fatal(err)
	}
	for i, letter := range f.shelf.of("unresolved") {
		m := letter.Metadata
		if m[consume.TenantKey] != "shop" || m[consume.NamespaceKey] != "mails" || m[consume.KeyKey] != "mailer/message/m1" || m[consume.VersionKey] == "0" {
			t.Errorf("delivery %d: %v", i+1, m)
		}
	}
}

func TestWhatCanNotBePutAsideIsNotAcknowledged(t *testing.T) {
	for name, ending := range map[string]error{"a dead letter": idem.Final(errSoldOut), "an unresolved one": errSoldOut} {
		f := newOffice(t)
		f.shelf.away = errors.New("the broker is away")
		for range 2 {
			if err := f.deliver(f.options(), delivery("m1"), ending); !errors.Is(err, f.shelf.away) {
				t.Errorf("%s: %v", name, err)
			}
		}
		f.shelf.away = nil
		if err := f.deliver(f.options(), delivery("m1"), ending); err != nil || f.sent != 1 {
			t.Errorf("%s: %v after %d mails", name, err, f.sent)
		}
	}
}

func TestWhileTheDaemonIsAwayNothingIsSentOrAcknowledged(t *testing.T) {
	f := newOffice(t)
	f.daemon.Fault(fakedaemon.Away)
	if err := f.deliver(f.options(), delivery("m1"), nil); err == nil {
		t.Error("acknowledged")
	}
	f.mustBe(0, 0, 0)
}

func TestAMessageThatIsBeingHandledElsewhereIsDeliveredAgain(t *testing.T) {
	f := newOffice(t)
	_, err := f.client.Do(t.Context(), idem.Operation{Key: "mailer/message/m1", Fingerprint: idem.SHA256("message-v1", []byte("order-m1"))},
		func(context.Context, *idem.Grant) (*idem.Result, error) {
			var busy *idem.InProgressError
			if err := f.deliver(f.options(), delivery("m1"), nil); !errors.As(err, &busy) {
				t.Errorf("meanwhile: %v", err)
			}
			return nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.deliver(f.options(), delivery("m1"), nil); err != nil {
		t.Error(err)
	}
	f.mustBe(0, 0, 0)
}

func TestAVerdictThatWaitsForTheSettleTimeIsAskedForAgain(t *testing.T) {
	f := newOffice(t)
	o := f.options()
	if err := f.deliver(o, delivery("m1"), errors.New("no answer")); err != nil {
		t.Fatal(err)
	}
	o.Operation.Settle = 2 * time.Hour // the fake daemon says that one has passed
	o.Operation.Reconcile = func(context.Context, *idem.Unresolved) (idem.Verdict, error) { return idem.WasNotExecuted(), nil }
	if err := f.deliver(o, delivery("m1"), nil); err == nil {
		t.Error("acknowledged, though another delivery brings more")
	}
	f.mustBe(1, 0, 1)
	o.Operation.Settle = time.Nanosecond
	if err := f.deliver(o, delivery("m1"), nil); err != nil {
		t.Error(err)
	}
	f.mustBe(2, 0, 1)
}

func TestAMessageWhoseMeaningCanNotBeReadIsADeadLetter(t *testing.T) {
	f := newOffice(t)
	o := f.options()
	o.Fingerprint = func(*message.Message) idem.Fingerprint { panic("no payload") }
	if err := f.deliver(o, delivery("m1"), nil); err != nil {
		t.Error(err)
	}
	f.mustBe(0, 1, 0)
}

func TestWrongOptionsOfIdemAreRefused(t *testing.T) {
	f := newOffice(t)
	for name, change := range map[string]func(*consume.Options){
		"no consumer": func(o *consume.Options) { o.Consumer = "" }, "no place for the unresolved": func(o *consume.Options) { o.Unresolved = "" },
		"attempts": func(o *consume.Options) { o.Attempts = 3 }, "a key": func(o *consume.Options) { o.Operation.Key = "k" },
		"a fingerprint": func(o *consume.Options) { o.Operation.Fingerprint = idem.SHA256("x", nil) },
		"a first time":  func(o *consume.Options) { o.Operation.FirstAttemptAt = time.Now() },
	} {
		o := f.options()
		change(&o)
		if _, err := consume.Idem(f.client, o); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := consume.Idem(nil, f.options()); err == nil {
		t.Error("no client is taken for one")
	}
}
