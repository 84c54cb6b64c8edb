package pebblestore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// BenchmarkReserveComplete runs whole cycles on the disk: a batch of Reserves, then the
// batch of their Completes. One operation is one cycle of one key. Two batches are
// under way at a time, as the engine has it.
func BenchmarkReserveComplete(b *testing.B) {
	for _, size := range []int{1, 64, 256} {
		b.Run(fmt.Sprint("batch-", size), func(b *testing.B) {
			s := mustOpen(b, silent(Options{Dir: b.TempDir()}))
			var next atomic.Int64
			var callers sync.WaitGroup
			b.ResetTimer()
			for range 2 {
				callers.Go(func() {
					for {
						first := next.Add(int64(size)) - int64(size)
						if first >= int64(b.N) {
							return
						}
						cycle(b, s, int(first), size)
					}
				})
			}
			callers.Wait()
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}

func cycle(b *testing.B, s *Store, first, size int) {
	reserves := make([]reservation.Command, size)
	completes := make([]reservation.Command, size)
	for i := range size {
		a := storetest.At(fmt.Sprintf("order-%d", (first+i)*2654435761%(1<<40)))
		reserves[i], completes[i] = storetest.Reserve(a, first+i), storetest.Complete(a, first+i, "a small body")
	}
	for _, outcome := range s.Apply(context.Background(), reserves) {
		if _, is := outcome.(*reservation.Owned); !is {
			b.Errorf("answered %T %v", outcome, outcome)
		}
	}
	for _, outcome := range s.Apply(context.Background(), completes) {
		if _, is := outcome.(*reservation.Recorded); !is {
			b.Errorf("answered %T %v", outcome, outcome)
		}
	}
}
