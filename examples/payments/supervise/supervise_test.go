package supervise

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestWhatEndsAsSoonAsItIsStartedIsGivenUp(t *testing.T) {
	logs := &bytes.Buffer{} // one process, one goroutine that writes
	err := Run(context.Background(), []Process{{Name: "short", Program: "false"}}, logs)
	if err == nil || !strings.Contains(err.Error(), "short") || !strings.Contains(err.Error(), "10 times") {
		t.Errorf("the error is %v", err)
	}
	if n := strings.Count(logs.String(), "started again"); n != mostQuick-1 {
		t.Errorf("it was started again %d times", n)
	}
}

func TestWhatCanNotBeStartedIsGivenUp(t *testing.T) {
	err := Run(context.Background(), []Process{{Name: "missing", Program: "/there/is/no/such/program"}}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("the error is %v", err)
	}
}

func TestRunEndsWithoutAnErrorWhenItIsTold(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	logs := &startedSignal{started: make(chan struct{})}
	go func() {
		<-logs.started
		stop()
	}()
	if err := Run(ctx, []Process{{Name: "long", Program: "sleep", Args: []string{"600"}}}, logs); err != nil {
		t.Error(err)
	}
}

// startedSignal is a log that tells when a process was started.
type startedSignal struct{ started chan struct{} }

// Write implements io.Writer.
func (s *startedSignal) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"msg":"started"`)) {
		close(s.started)
	}
	return len(p), nil
}
