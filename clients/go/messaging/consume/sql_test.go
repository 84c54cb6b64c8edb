package consume_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/consume"
)

func TestAMessageIsHandledInOneTransactionAndItsCopiesAreAcknowledgedWithoutItsHandler(t *testing.T) {
	h := newHouse(t)
	runs := 0
	handler := h.sql(h.pool, h.options(), counted(&runs, reserve))
	for range 3 {
		if !h.acknowledged(handler, delivery("m1")) {
			t.Error("not acknowledged")
		}
		h.mustCount(1, "SELECT count(*) FROM effects, idem_inbox WHERE id = 'm1'")
	}
	if runs != 1 {
		t.Errorf("it ran %d times", runs)
	}
}

func TestCopiesAtTheSameMomentAreHandledOnce(t *testing.T) {
	h := newHouse(t)
	handler := h.sql(h.pool, h.options(), reserve)
	var copies sync.WaitGroup
	for range 50 {
		copies.Go(func() {
			if _, err := handler(delivery("m1")); err != nil {
				t.Error(err)
			}
		})
	}
	copies.Wait()
	h.mustCount(1, "SELECT count(*) FROM effects")
}

func TestTwoMessagesAboutOnePaymentAreHandledOnce(t *testing.T) {
	h := newHouse(t)
	o := h.options()
	o.ID = func(msg *message.Message) (string, error) { return msg.Metadata["id"], nil }
	o.Business = func(msg *message.Message) (string, error) { return msg.Metadata["payment"], nil }
	handler := h.sql(h.pool, o, reserve)
	for id, payment := range map[string]string{"m1": "p1", "m2": "p1", "m3": "p2", "m4": "", "m5": ""} {
		msg := delivery("one UUID for all")
		msg.Metadata["id"], msg.Metadata["payment"] = id, payment
		if !h.acknowledged(handler, msg) {
			t.Errorf("%s is not acknowledged", id)
		}
	}
	h.mustCount(4, "SELECT count(*) FROM effects")
}

func TestALostReplyToCommitIsAnErrorAndTheNextDeliveryFindsTheMark(t *testing.T) {
	h := newHouse(t)
	runs := 0
	lost := &begins{Beginner: h.pool, commit: func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		return io.ErrUnexpectedEOF
	}}
	if h.acknowledged(h.sql(lost, h.options(), counted(&runs, reserve)), delivery("m1")) {
		t.Error("acknowledged, though nobody knows whether it is committed")
	}
	if !h.acknowledged(h.sql(h.pool, h.options(), counted(&runs, reserve)), delivery("m1")) || runs != 1 {
		t.Errorf("after %d runs", runs)
	}
	h.mustCount(1, "SELECT count(*) FROM effects")
	h.mustCount(0, "SELECT count(*) FROM idem_inbox_failures")
}

func TestAMessageThatFailsAgainAndAgainIsADeadLetterAndOnlyThenAcknowledged(t *testing.T) {
	h := newHouse(t)
	runs := 0
	handler := h.sql(h.pool, h.options(), counted(&runs, failing(errSoldOut)))
	for attempt := 1; attempt < consume.DefaultAttempts; attempt++ {
		if h.acknowledged(handler, delivery("m1")) {
			t.Errorf("acknowledged after %d attempts", attempt)
		}
	}
	h.mustCount(1, "SELECT count(*) FROM idem_inbox_failures WHERE attempts = 4 AND last_error = 'sold out'")
	h.shelf.away = errors.New("the broker is away")
	if _, err := handler(delivery("m1")); !errors.Is(err, h.shelf.away) {
		t.Errorf("with nowhere to go: %v", err)
	}
	h.shelf.away = nil
	if len(h.shelf.of("dead")) > 0 {
		t.Error("it is a dead letter too early")
	}
	if !h.acknowledged(handler, delivery("m1")) {
		t.Error("not acknowledged")
	}
	dead := h.shelf.of("dead")
	if len(dead) != 1 || runs != 6 {
		t.Fatalf("%d dead letters after %d runs", len(dead), runs)
	}
	letter := dead[0]
	want := map[string]string{consume.ReasonKey: "sold out", consume.ConsumerKey: "warehouse", consume.TopicKey: "", consume.AttemptsKey: "6", consume.MessageKey: "m1", "kind": "order.placed"}
	if letter.UUID == "m1" || string(letter.Payload) != "order-m1" || fmt.Sprint(letter.Metadata) != fmt.Sprint(message.Metadata(want)) {
		t.Errorf("the letter is %q %q %v", letter.UUID, letter.Payload, letter.Metadata)
	}
	h.mustCount(0, "SELECT (SELECT count(*) FROM effects) + (SELECT count(*) FROM idem_inbox)")

	// It is mended and sent once more, by whoever has the letter; then by who has the message.
	letter = letter.Copy()
	for _, again := range []*message.Message{letter, delivery("m1")} {
		if !h.acknowledged(h.sql(h.pool, h.options(), reserve), again) {
			t.Error("not acknowledged")
		}
		h.mustCount(1, "SELECT count(*) FROM effects")
		h.mustCount(0, "SELECT count(*) FROM idem_inbox_failures")
	}
}

// What the handler does to its message is not what becomes of it.
func TestAHandlerCanNeitherAcknowledgeNorChangeItsMessage(t *testing.T) {
	h := newHouse(t)
	o := h.options()
	o.Attempts = 1
	handler := h.sql(h.pool, o, func(msg *message.Message) ([]*message.Message, error) {
		msg.Ack()
		msg.UUID, msg.Payload[0] = "other", 'X'
		msg.Metadata["kind"] = "other"
		return nil, errSoldOut
	})
	msg := delivery("m1")
	if _, err := handler(msg); err != nil {
		t.Error(err)
	}
	select {
	case <-msg.Acked():
		t.Error("the handler has acknowledged it")
	default:
	}
	if dead := h.shelf.of("dead"); len(dead) != 1 || string(dead[0].Payload) != "order-m1" || dead[0].Metadata[consume.MessageKey] != "m1" || dead[0].Metadata["kind"] != "order.placed" {
		t.Errorf("the letters are %v", dead)
	}
}

func TestMessagesToPublishAreRefusedAndTheErrorNamesTheOutbox(t *testing.T) {
	h := newHouse(t)
	_, err := h.sql(h.pool, h.options(), func(msg *message.Message) ([]*message.Message, error) {
		_, _ = reserve(msg)
		return []*message.Message{delivery("m2")}, nil
	})(delivery("m1"))
	if err == nil || !strings.Contains(err.Error(), "outbox in the same transaction") {
		t.Errorf("told %v", err)
	}
	h.mustCount(0, "SELECT count(*) FROM effects")
}

// after runs a statement after the effect, whose error is the handler's.
func after(statement string) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if _, err := reserve(msg); err != nil {
			return nil, err
		}
		tx, _ := consume.Tx(msg.Context())
		_, err := tx.Exec(msg.Context(), statement)
		return nil, err
	}
}

func raise(code string) message.HandlerFunc {
	return after("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '" + code + "'; END $$")
}

func TestWhatCountsAsAnAttemptIsAboutTheMessage(t *testing.T) {
	const createTwice = "CREATE TABLE IF NOT EXISTS twice (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)"
	for name, c := range map[string]struct {
		handler message.HandlerFunc
		counts  int
	}{
		"an error":                           {failing(errSoldOut), 1},
		"a panic":                            {func(*message.Message) ([]*message.Message, error) { panic("at the disco") }, 1},
		"messages to publish":                {func(*message.Message) ([]*message.Message, error) { return []*message.Message{delivery("x")}, nil }, 1},
		"a violated constraint":              {raise("23505"), 1},
		"a deferred constraint, at COMMIT":   {after("INSERT INTO twice VALUES (1), (1)"), 1},
		"the database's own time-out":        {after("SET LOCAL statement_timeout = 1; SELECT pg_sleep(10)"), 1},
		"the handler's own time-out, in SQL": {impatient, 1},
		"an error of SQL that it swallows": {func(msg *message.Message) ([]*message.Message, error) {
			_, _ = raise("23505")(msg)
			return nil, nil
		}, 1},

		"declared transient":         {failing(fmt.Errorf("stock: %w", consume.Transient(errSoldOut))), 0},
		"serialization failure":      {raise("40001"), 0},
		"deadlock":                   {raise("40P01"), 0},
		"no lock within a time":      {raise("55P03"), 0},
		"out of connections":         {raise("53300"), 0},
		"a standby by now":           {after("SET TRANSACTION READ ONLY; INSERT INTO effects VALUES ('x')"), 0},
		"the database shutting down": {after("SELECT pg_terminate_backend(pg_backend_pid())"), 0},
		"another database away": {func(*message.Message) ([]*message.Message, error) {
			_, err := pgx.Connect(context.Background(), "postgres://127.0.0.1:1/x")
			return nil, err
		}, 0},
		"the connection broken": {func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := consume.Tx(msg.Context())
			_ = tx.Conn().PgConn().Conn().Close()
			return reserve(msg)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.exec(createTwice)
			if h.acknowledged(h.sql(h.pool, h.options(), c.handler), delivery("m1")) {
				t.Error("acknowledged")
			}
			h.mustCount(c.counts, "SELECT coalesce(sum(attempts), 0) FROM idem_inbox_failures")
			h.mustCount(0, "SELECT count(*) FROM effects")
		})
	}
}

func impatient(msg *message.Message) ([]*message.Message, error) {
	ctx, cancel := context.WithTimeout(msg.Context(), time.Millisecond)
	defer cancel()
	tx, _ := consume.Tx(ctx)
	_, err := tx.Exec(ctx, "SELECT pg_sleep(10)")
	return nil, err
}

func TestNothingIsCountedOrAcknowledgedWhileTheDatabaseIsAwayOrTheContextEnds(t *testing.T) {
	for name, c := range map[string]struct {
		db      func(h *house) consume.Beginner
		handler message.HandlerFunc
	}{
		"away at BEGIN": {func(h *house) consume.Beginner {
			return &begins{Beginner: h.pool, begin: func(context.Context) error { return io.EOF }}
		}, reserve},
		"away at COMMIT": {func(h *house) consume.Beginner { return &begins{Beginner: h.pool, commit: closed} }, reserve},
		"no inbox there": {func(h *house) consume.Beginner { h.exec("ALTER TABLE idem_inbox RENAME TO gone"); return h.pool }, reserve},
		"the context":    {func(h *house) consume.Beginner { return h.pool }, func(msg *message.Message) ([]*message.Message, error) { return nil, end(msg) }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			handler := h.sql(c.db(h), h.options(), c.handler)
			for range 2 * consume.DefaultAttempts {
				ctx, cancel := context.WithCancel(context.WithValue(h.ctx, cancelKey{}, nil))
				msg := delivery("m1")
				msg.SetContext(context.WithValue(ctx, cancelKey{}, cancel))
				if h.acknowledged(handler, msg) {
					t.Error("acknowledged")
				}
				cancel()
			}
			h.mustCount(0, "SELECT (SELECT count(*) FROM idem_inbox_failures) + (SELECT count(*) FROM effects)")
			if n := len(h.shelf.of("dead")); n > 0 {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}

type cancelKey struct{}

// end ends the context of its message, as a router does that closes.
func end(msg *message.Message) error {
	msg.Context().Value(cancelKey{}).(context.CancelFunc)()
	return msg.Context().Err()
}

// closed loses the connection at the COMMIT of what is marked, and lets failures be counted.
func closed(ctx context.Context, tx pgx.Tx) error {
	var marked bool
	if err := tx.QueryRow(ctx, "SELECT count(*) > 0 FROM idem_inbox").Scan(&marked); err == nil && marked {
		_ = tx.Conn().Close(ctx)
	}
	return tx.Commit(ctx)
}

func TestAFailureThatCanNotBeCountedIsNotAcknowledged(t *testing.T) {
	h := newHouse(t)
	h.exec("ALTER TABLE idem_inbox_failures RENAME TO gone")
	o := h.options()
	o.Attempts = 1
	if _, err := h.sql(h.pool, o, failing(errSoldOut))(delivery("m1")); !errors.Is(err, errSoldOut) || !strings.Contains(err.Error(), "can't be counted") {
		t.Errorf("told %v", err)
	}
}

func TestAMessageWithoutAnIdentityIsADeadLetterAtOnce(t *testing.T) {
	h := newHouse(t)
	refuse := func(*message.Message) (string, error) {
		return "", errors.New("no payment\nin it\xff " + strings.Repeat("é", 600))
	}
	panics := func(*message.Message) (string, error) { panic("no payment in it") }
	for name, c := range map[string]struct {
		uuid     string
		business func(*message.Message) (string, error)
	}{"no UUID": {"", nil}, "a long UUID": {strings.Repeat("x", 256), nil}, "no business identity": {"m1", refuse}, "a panic": {"m1", panics}} {
		h.shelf = &shelf{}
		o := h.options()
		o.Business = c.business
		if !h.acknowledged(h.sql(h.pool, o, reserve), delivery(c.uuid)) {
			t.Errorf("%s: not acknowledged", name)
		}
		dead := h.shelf.of("dead")
		if len(dead) != 1 {
			t.Fatalf("%s: %d dead letters", name, len(dead))
		}
		if reason := dead[0].Metadata[consume.ReasonKey]; reason == "" || strings.ContainsAny(reason, "\n\r") || len(reason) > 512 || !utf8.ValidString(reason) {
			t.Errorf("%s: the reason is %q", name, reason)
		}
	}
	h.mustCount(0, "SELECT count(*) FROM effects")
}

func TestAPanicEndsNoRouterAndTellsWhereItWasWithoutWhatItHeld(t *testing.T) {
	h := newHouse(t)
	_, err := h.sql(h.pool, h.options(), func(*message.Message) ([]*message.Message, error) { panic(struct{ card string }{"4111"}) })(delivery("m1"))
	var p *consume.PanicError
	if !errors.As(err, &p) || !strings.Contains(err.Error(), "sql_test.go") || strings.Contains(err.Error(), "4111") {
		t.Errorf("told %v", err)
	}
	h.mustCount(1, "SELECT count(*) FROM idem_inbox_failures WHERE last_error LIKE '%panicked%' AND last_error NOT LIKE '%4111%' AND last_error NOT LIKE '%.go%'")
}

// The whole of it in a router, with Watermill's Recoverer on either side.
func TestARouterHandlesEachMessageOnceAndPutsPoisonAside(t *testing.T) {
	for name, order := range map[string]func(sql message.HandlerMiddleware) []message.HandlerMiddleware{
		"alone": func(sql message.HandlerMiddleware) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{sql}
		},
		"the recoverer outside": func(sql message.HandlerMiddleware) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{middleware.Recoverer, sql}
		},
		"the recoverer inside": func(sql message.HandlerMiddleware) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{sql, middleware.Recoverer}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
			o := h.options()
			o.Attempts = 3
			sql, err := consume.SQL(h.pool, h.inbox, o)
			if err != nil {
				t.Fatal(err)
			}
			run(t, channel, "orders", func(msg *message.Message) error {
				switch msg.UUID {
				case "panics":
					panic("at the disco")
				case "poison":
					return errSoldOut
				}
				_, err := reserve(msg)
				return err
			}, order(sql)...)
			for _, id := range []string{"m1", "panics", "m2", "m1", "poison", "m3", "m2"} {
				if err := channel.Publish("orders", delivery(id)); err != nil { // until it is acknowledged
					t.Fatal(err)
				}
			}
			h.mustCount(3, "SELECT count(*) FROM effects")
			for _, letter := range h.shelf.of("dead") {
				if letter.Metadata[consume.TopicKey] != "orders" || letter.Metadata[consume.AttemptsKey] != "3" {
					t.Errorf("a letter says %v", letter.Metadata)
				}
			}
			if n := len(h.shelf.of("dead")); n != 2 {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}

func TestTheHandlerRunsWithinTheTraceOfWhoHasSentTheMessage(t *testing.T) {
	h := newHouse(t)
	const sent = "4bf92f3577b34da6a3ce929d0e0e4736"
	var seen trace.SpanContext
	handler := h.sql(h.pool, h.options(), func(msg *message.Message) ([]*message.Message, error) {
		seen = trace.SpanContextFromContext(msg.Context())
		return nil, nil
	})
	msg := delivery("m1")
	msg.Metadata["traceparent"], msg.Metadata["tracestate"] = "00-"+sent+"-00f067aa0ba902b7-01", "shop=42"
	if !h.acknowledged(handler, msg) || seen.TraceID().String() != sent || !seen.IsRemote() || !seen.IsSampled() || seen.TraceState().Get("shop") != "42" {
		t.Errorf("the handler sees %v", seen)
	}
	// A span that has been begun for the delivery stays.
	begun := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	msg = delivery("m2")
	msg.Metadata["traceparent"] = "00-" + sent + "-00f067aa0ba902b7-01"
	msg.SetContext(trace.ContextWithSpanContext(h.ctx, begun))
	if !h.acknowledged(handler, msg) || !seen.Equal(begun) {
		t.Errorf("the handler sees %v", seen)
	}
}

func TestWrongOptionsOfSQLAreRefused(t *testing.T) {
	h := newHouse(t)
	for name, change := range map[string]func(*consume.Options){
		"no consumer": func(o *consume.Options) { o.Consumer = "" }, "a consumer with a space": func(o *consume.Options) { o.Consumer = "the warehouse" },
		"a long consumer": func(o *consume.Options) { o.Consumer = strings.Repeat("x", 129) },
		"no publisher":    func(o *consume.Options) { o.Publisher = nil }, "no place for dead letters": func(o *consume.Options) { o.DeadLetter = "" },
		"attempts below zero": func(o *consume.Options) { o.Attempts = -1 }, "what is for Idem": func(o *consume.Options) { o.Unresolved = "x" },
		"a mode": func(o *consume.Options) { o.Operation.Mode = idem.Transactional },
		"a fingerprint": func(o *consume.Options) {
			o.Fingerprint = func(*message.Message) idem.Fingerprint { return idem.Fingerprint{} }
		},
	} {
		o := h.options()
		change(&o)
		if _, err := consume.SQL(h.pool, h.inbox, o); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := consume.SQL(nil, h.inbox, h.options()); err == nil {
		t.Error("no database is taken for one")
	}
	if _, err := consume.SQL(h.pool, nil, h.options()); err == nil {
		t.Error("no inbox is taken for one")
	}
}

// It has failed and waits for its next delivery; meanwhile its sender sends it again.
func TestACopyThatComesBeforeTheRetryIsHandledAndTheRetryIsNot(t *testing.T) {
	h := newHouse(t)
	runs := 0
	handler := h.sql(h.pool, h.options(), func(msg *message.Message) ([]*message.Message, error) {
		if runs++; runs == 1 {
			return failing(errSoldOut)(msg)
		}
		return reserve(msg)
	})
	failed := delivery("m1")
	if h.acknowledged(handler, failed) {
		t.Error("the first delivery is acknowledged")
	}
	for name, msg := range map[string]*message.Message{"the copy": delivery("m1"), "the retry": failed} {
		if !h.acknowledged(handler, msg) {
			t.Errorf("%s is not acknowledged", name)
		}
	}
	if runs != 2 {
		t.Errorf("it ran %d times", runs)
	}
	h.mustCount(1, "SELECT count(*) FROM effects")
	h.mustCount(0, "SELECT count(*) FROM idem_inbox_failures")
}

// What is said in a letter may be what makes it too large for a broker that took the message.
func TestALetterThatIsTooLargeGoesWithoutWhatIsSaidInIt(t *testing.T) {
	h := newHouse(t)
	o := h.options()
	o.Attempts = 1
	o.Publisher = tight{h.shelf}
	if !h.acknowledged(h.sql(h.pool, o, failing(errSoldOut)), delivery("m1")) {
		t.Error("not acknowledged")
	}
	dead := h.shelf.of("dead")
	if len(dead) != 1 || dead[0].Metadata[consume.MessageKey] != "m1" || dead[0].Metadata[consume.ReasonKey] != "" || dead[0].Metadata["kind"] == "" {
		t.Errorf("the letters are %v", dead)
	}
}

// tight is a broker that takes two headers.
type tight struct{ message.Publisher }

func (p tight) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if len(m.Metadata) > 2 {
			return errors.New("maximum payload exceeded")
		}
	}
	return p.Publisher.Publish(topic, messages...)
}

// The time-out is the database's, and what takes so long is the handler: it is no outage.
func TestAHandlerThatIsIdleForTooLongIsCounted(t *testing.T) {
	h := newHouse(t)
	o := h.options()
	o.Attempts = 1
	handler := h.sql(h.pool, o, func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := consume.Tx(msg.Context())
		if _, err := tx.Exec(msg.Context(), "SET LOCAL idle_in_transaction_session_timeout = '10ms'"); err != nil {
			return nil, err
		}
		for ended := false; !ended; { // it is the only one within a transaction
			err := h.pool.QueryRow(h.ctx, `SELECT count(*) = 0 FROM pg_stat_activity
				WHERE state LIKE 'idle in%' AND datname = current_database()`).Scan(&ended)
			if err != nil {
				return nil, err
			}
		}
		_, err := tx.Exec(msg.Context(), "SELECT 1")
		return nil, err
	})
	if !h.acknowledged(handler, delivery("m1")) || len(h.shelf.of("dead")) != 1 {
		t.Error("it is not a dead letter")
	}
}

func TestAHandlerCanNotEndTheTransaction(t *testing.T) {
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			o := h.options()
			o.Attempts = 1
			handler := h.sql(h.pool, o, func(msg *message.Message) ([]*message.Message, error) {
				if _, err := reserve(msg); err != nil {
					return nil, err
				}
				tx, _ := consume.Tx(msg.Context())
				return nil, end(msg.Context(), tx)
			})
			if !h.acknowledged(handler, delivery("m1")) || len(h.shelf.of("dead")) != 1 {
				t.Error("it is not a dead letter")
			}
			h.mustCount(0, "SELECT (SELECT count(*) FROM effects) + (SELECT count(*) FROM idem_inbox)")
		})
	}
}
