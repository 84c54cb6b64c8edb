package supervise

import (
	"context"
	"strings"
	"sync"
	"testing"
)

func TestWhatEndsAsSoonAsItIsStartedIsGivenUp(t *testing.T) {
	logs := &signalled{}
	err := New([]Process{{Name: "short", Program: "false"}}, logs).Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "short") || !strings.Contains(err.Error(), "20 times") {
		t.Errorf("the error is %v", err)
	}
	if n := strings.Count(logs.String(), "started again"); n != mostQuick-1 {
		t.Errorf("it was started again %d times", n)
	}
}

func TestWhatCanNotBeStartedIsGivenUp(t *testing.T) {
	err := New([]Process{{Name: "missing", Program: "/there/is/no/such/program"}}, &signalled{}).Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("the error is %v", err)
	}
}

func TestRunEndsWithoutAnErrorWhenItIsTold(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	logs := &signalled{started: make(chan struct{})}
	go func() {
		<-logs.started
		stop()
	}()
	if err := New([]Process{{Name: "long", Program: "sleep", Args: []string{"600"}}}, logs).Run(ctx); err != nil {
		t.Error(err)
	}
}

// signalled is a log that tells when a process was started.
type signalled struct {
	started chan struct{}     // nil = tells nobody
	seen    func(text string) // nil; called with all that was written

	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (s *signalled) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started != nil && strings.Contains(string(p), `"msg":"started"`) {
		close(s.started)
	}
	n, err := s.text.Write(p)
	if s.seen != nil {
		s.seen(s.text.String())
	}
	return n, err
}

// String is all that was written.
func (s *signalled) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestWhatIsKilledIsStartedAgain(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	again := make(chan struct{})
	logs := &signalled{}
	group := New([]Process{{Name: "long", Program: "sleep", Args: []string{"600"}}}, logs)
	logs.seen = func(text string) {
		switch strings.Count(text, `"msg":"started"`) {
		case 1:
			go group.Kill("long")
		case 2:
			select {
			case <-again:
			default:
				close(again)
			}
		}
	}
	ended := make(chan error)
	go func() { ended <- group.Run(ctx) }()
	<-again
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if group.Kill("long") || group.Kill("nobody") {
		t.Error("what does not run was killed")
	}
}
