package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	runtimemetrics "runtime/metrics"
	"sync"
	"testing"

	"github.com/idemd/idemd/internal/config"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// Nothing in the daemon remembers the keys it has seen: neither queue, locks, caches
// nor metrics grow with their number.
func TestMemoryIsFlatOverManyDistinctKeys(t *testing.T) {
	const callers, warm, more = 512, 40_000, 160_000
	switch {
	case testing.Short():
		t.Skip("200,000 keys take some seconds")
	case otherMemory != "":
		t.Skip(otherMemory)
	}
	opened, err := OpenStore(t.Context(), config.Store{DataDir: t.TempDir()}, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	m := newMetrics(false)
	e, err := engine.New(engine.Options{Store: opened, Writers: writers, Hooks: m.hooks()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	next := make(chan int)
	do := func(c reservation.Command) {
		if _, err := e.Do(context.Background(), c); err != nil {
			t.Error(err)
		}
	}
	var working sync.WaitGroup
	for range callers {
		working.Go(func() {
			for n := range next {
				a := reservation.Address{Tenant: fmt.Sprintf("tenant-%d", n%5000), Namespace: "default", Key: fmt.Sprintf("key-%d", n)}
				token := reservation.Token(fmt.Sprintf("token-%018d", n))
				do(&reservation.Reserve{Address: a, Token: token, Fingerprint: reservation.Fingerprint{Scheme: "test-v1", Digest: make([]byte, 32)}})
				do(&reservation.Complete{Address: a, Token: token, Result: reservation.Result{Body: []byte("done")}})
			}
		})
	}
	for n := range warm {
		next <- n
	}
	before := liveHeap()
	for n := range more {
		next <- warm + n
	}
	after := liveHeap()
	close(next)
	working.Wait()
	// 40 bytes a key would show: less than one entry of a map takes.
	const most = 40 * more
	t.Logf("%d KiB are live after %d keys, %d KiB after %d", before>>10, warm, after>>10, warm+more)
	if after > before+most {
		t.Errorf("the heap grew by %d KiB over %d keys, at most %d are allowed", (after-before)>>10, more, most>>10)
	}
}

// liveHeap is what a collection leaves, in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
