package storetest

import (
	"testing"

	"github.com/idemd/idemd/internal/store"
)

func TestTheReferenceIsLinearizable(t *testing.T) { Linearizable(t, OpenMem, nil) }

// What only rivals can see must not pass, nor what anybody sees.
func TestWhatIsNotLinearizableIsFound(t *testing.T) {
	const most = 20
	for _, defect := range []Defect{ReadsBeforeLock, StaleTakeover, ForgetsTokenCheck, DropsSecond, LosesExtensions, LosesSpent} {
		t.Run(string(defect), func(t *testing.T) {
			for seed := range uint64(most) {
				h := openDefective(defect)
				if failures := watch(func(w T) { compete(w, h, []store.Store{h.Store}, seed) }); len(failures) > 0 {
					t.Logf("found in contest %d: %.1000s", seed, failures[0])
					return
				}
			}
			t.Errorf("%d contests did not find it", most)
		})
	}
}
