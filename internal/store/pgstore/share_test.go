package pgstore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

func TestDaemonsHearOfOneAnothersDemandUntilTheyFallSilent(t *testing.T) {
	for name, parameters := range map[string]string{"prepared": "", "through a pooler": "&default_query_exec_mode=exec"} {
		t.Run(name, func(t *testing.T) {
			h := openWith(t, parameters)
			sharer := h.Store.(store.Sharer)
			tenant, namespace := store.Scope{Tenant: "acme"}, store.Scope{Tenant: "acme", Namespace: "mails"}
			share := func(daemon string, demand map[store.Scope]float64, want store.Demand) {
				t.Helper()
				got, err := sharer.Share(t.Context(), daemon, demand)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s hears (-want +got):\n%s", daemon, diff)
				}
			}
			both := map[store.Scope]float64{tenant: 30.5, namespace: 1}
			share("a", both, store.Demand{Daemons: 1, Scopes: both})
			share("b", map[store.Scope]float64{tenant: 10}, store.Demand{Daemons: 2, Scopes: map[store.Scope]float64{tenant: 40.5, namespace: 1}})
			share("c", nil, store.Demand{Daemons: 3, Scopes: map[store.Scope]float64{tenant: 40.5, namespace: 1}})
			share("a", map[store.Scope]float64{tenant: 0, namespace: 2}, store.Demand{Daemons: 3, Scopes: map[store.Scope]float64{tenant: 10, namespace: 2}})
			h.SetClock(storetest.Start.Add((store.ShareWindow + 1) * time.Second))
			share("b", nil, store.Demand{Daemons: 1, Scopes: map[store.Scope]float64{}})
			h.SetClock(storetest.Start.Add(forgetAfter + (store.ShareWindow+2)*time.Second))
			share("b", nil, store.Demand{Daemons: 1, Scopes: map[store.Scope]float64{}})
			share("b", nil, store.Demand{Daemons: 1, Scopes: map[store.Scope]float64{}})
		})
	}
}
