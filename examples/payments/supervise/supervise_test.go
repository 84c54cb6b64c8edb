package supervise

import (
	"context"
	"strings"
	"sync"
	"testing"
)

func TestWhatEndsAsSoonAsItIsStartedIsGivenUp(t *testing.T) {
	logs := &signalled{}
	err := Run(context.Background(), []Process{{Name: "short", Program: "false"}}, logs)
	if err == nil || !strings.Contains(err.Error(), "short") || !strings.Contains(err.Error(), "10 times") {
		t.Errorf("the error is %v", err)
	}
	if n := strings.Count(logs.String(), "started again"); n != mostQuick-1 {
		t.Errorf("it was started again %d times", n)
	}
}

func TestWhatCanNotBeStartedIsGivenUp(t *testing.T) {
	err := Run(context.Background(), []Process{{Name: "missing", Program: "/there/is/no/such/program"}}, &signalled{})
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
	if err := Run(ctx, []Process{{Name: "long", Program: "sleep", Args: []string{"600"}}}, logs); err != nil {
		t.Error(err)
	}
}

// signalled is a log that tells when a process was started.
type signalled struct {
	started chan struct{} // nil = tells nobody

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
	return s.text.Write(p)
}

// String is all that was written.
func (s *signalled) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
