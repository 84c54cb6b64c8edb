package e2e

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
)

// fiftyAtOnce lets fifty callers ask two replicas under one key, on PostgreSQL each with a
// daemon of its own. The effect happens once all have asked. Serve runs a replica whose
// idemd is at an address and whose handler answers what the effect returns; it tells how
// to ask it.
func fiftyAtOnce(t *testing.T, serve func(t *testing.T, daemon string, effect func() string) (ask func() (said string, replayed bool, err error))) {
	t.Helper()
	const callers = 50
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		daemons := []string{house.Serve(t, s).GRPC}
		daemons = append(daemons, daemons[0])
		if s.Shared {
			daemons[1] = house.Serve(t, s).GRPC
		}
		var proxies []*fault.GRPC
		for _, daemon := range daemons {
			proxies = append(proxies, harness.GRPC(t, daemon))
		}
		var effects, replays atomic.Int32
		effect := func() string {
			harness.Until(t, "all callers to have asked", func() bool {
				return proxies[0].Calls(reserveMethod)+proxies[1].Calls(reserveMethod) >= callers
			})
			return fmt.Sprint("effect ", effects.Add(1))
		}
		var replicas []func() (string, bool, error)
		for _, proxy := range proxies {
			replicas = append(replicas, serve(t, proxy.Addr(), effect))
		}
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				said, replayed, err := replicas[i%2]()
				if err != nil || said != "effect 1" {
					t.Errorf("a caller is answered %q, %v", said, err)
				}
				if replayed {
					replays.Add(1)
				}
			})
		}
		all.Wait()
		if effects.Load() != 1 || replays.Load() != callers-1 {
			t.Errorf("%d effects, %d replays", effects.Load(), replays.Load())
		}
	})
}
