package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/idemd/idemd/internal/access"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

func at(tenant, namespace string) reservation.Address {
	return reservation.Address{Tenant: tenant, Namespace: namespace, Key: "k"}
}

func TestAsManyNamespacesAsTheBoundHaveLabelsAndTheOthersShareOne(t *testing.T) {
	m := newMetrics(false)
	const more = 25
	for i := range maxScopesInUse + more {
		m.decided(&reservation.Reserve{Address: at("acme", fmt.Sprint("n", i))}, &reservation.Owned{})
	}
	if n := testutil.CollectAndCount(m.decisions); n != maxScopesInUse+1 {
		t.Errorf("there are %d series, for a bound of %d and one for the others", n, maxScopesInUse)
	}
	if n := testutil.ToFloat64(m.decisions.WithLabelValues("(other)", "(other)", "OWNED")); n != more {
		t.Errorf("the others were answered %v times, want %d", n, more)
	}
}

func TestConfiguredNamespacesHaveLabelsHoweverManyAreInUse(t *testing.T) {
	m := newMetrics(false)
	for i := range maxScopesInUse {
		m.scopes.label(store.Scope{Tenant: "acme", Namespace: fmt.Sprint("n", i)}, true)
	}
	configured := store.Scope{Tenant: "acme", Namespace: "payments"}
	m.scopes.configure(engine.Policies{Namespaces: map[engine.Scope]engine.Policy{{Tenant: "acme", Namespace: "payments"}: {}}})
	if got := m.scopes.label(configured, false); got != configured {
		t.Errorf("a configured namespace is labelled %v", got)
	}
}

func TestNamesInWhatIsRefusedTakeNoLabels(t *testing.T) {
	m := newMetrics(false)
	m.decided(&reservation.Reserve{Address: at("made up", "at will")}, reservation.Errorf(reservation.TenantInvalid, "tenant", "no"))
	m.decided(&reservation.Lookup{Address: at("nobody", "none")}, reservation.Errorf(reservation.NotFound, "", "no"))
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if text := family.String(); strings.Contains(text, "made up") || strings.Contains(text, "nobody") {
			t.Errorf("the labels of %s hold a refused name: %s", family.GetName(), text)
		}
	}
	if n := testutil.ToFloat64(m.refusals.WithLabelValues("TENANT_INVALID")); n != 1 {
		t.Errorf("the refusal is counted %v times", n)
	}
}

func TestOnlyOutcomesThatAreRefusedAreEvidence(t *testing.T) {
	m := newMetrics(false)
	stale := reservation.Errorf(reservation.StaleToken, "", "no")
	m.decided(&reservation.Extend{Address: at("acme", "n")}, stale)
	if n := testutil.ToFloat64(m.stale.WithLabelValues("STALE_TOKEN")); n != 0 {
		t.Errorf("an Extend counts as %v outcomes", n)
	}
	m.decided(&reservation.Complete{Address: at("acme", "n")}, stale)
	m.decided(&reservation.Fail{Address: at("acme", "n")}, stale)
	if n := testutil.ToFloat64(m.stale.WithLabelValues("STALE_TOKEN")); n != 2 {
		t.Errorf("a Complete and a Fail count as %v outcomes", n)
	}
}

func TestCountsWithoutALabelAreShownTogetherAndNoneIsLost(t *testing.T) {
	s := newScopes()
	for i := range maxScopesInUse - 1 {
		s.label(store.Scope{Tenant: "t", Namespace: fmt.Sprint(i)}, true)
	}
	s.label(store.Scope{Tenant: "a", Namespace: "own"}, true)
	stats := store.Stats{
		Now:    100_000_000,
		Counts: store.Counts{Live: 9, Unknown: 4, OldestUnresolved: 10_000_000}, // two live ones are in namespaces that were cut
		Scopes: map[store.Scope]store.Counts{
			{Tenant: "a", Namespace: "own"}: {Live: 2, Unknown: 1, OldestUnresolved: 10_000_000},
			{Tenant: "a", Namespace: "x"}:   {Live: 3, Unknown: 1, OldestUnresolved: 70_000_000},
			{Tenant: "b", Namespace: "y"}:   {Live: 2, Unknown: 2, OldestUnresolved: 40_000_000},
		},
	}
	c := newScopeCounts(s, func(context.Context) (store.Stats, error) { return stats, nil })
	if err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP idemd_scope_oldest_unresolved_seconds Age of the oldest unresolved reservation of a namespace, in seconds.
# TYPE idemd_scope_oldest_unresolved_seconds gauge
idemd_scope_oldest_unresolved_seconds{namespace="(other)",tenant="(other)"} 60
idemd_scope_oldest_unresolved_seconds{namespace="own",tenant="a"} 90
# HELP idemd_scope_reservations Reservations that have not finished, by tenant, namespace and state: live, lapsed, unresolved.
# TYPE idemd_scope_reservations gauge
idemd_scope_reservations{namespace="(other)",state="lapsed",tenant="(other)"} 0
idemd_scope_reservations{namespace="(other)",state="live",tenant="(other)"} 7
idemd_scope_reservations{namespace="(other)",state="unresolved",tenant="(other)"} 3
idemd_scope_reservations{namespace="own",state="lapsed",tenant="a"} 0
idemd_scope_reservations{namespace="own",state="live",tenant="a"} 2
idemd_scope_reservations{namespace="own",state="unresolved",tenant="a"} 1
`)); err != nil {
		t.Error(err)
	}
}

func TestWhoReadsMetricsSeesNoOtherTenants(t *testing.T) {
	m := newMetrics(false)
	for _, tenant := range []string{"acme", "rival"} {
		m.decided(&reservation.Reserve{Address: at(tenant, "n")}, &reservation.Owned{})
	}
	for name, c := range map[string]struct {
		reader *access.Identity
		rival  bool
	}{
		"a tenant's operator":     {&access.Identity{Roles: access.Operator, Tenants: []string{"acme"}}, false},
		"a tenant's scraper":      {&access.Identity{Roles: access.Metrics, Tenants: []string{"acme"}}, false},
		"everybody's operator":    {&access.Identity{Roles: access.Operator, AllTenants: true}, true},
		"the platform's scraper":  {&access.Identity{Roles: access.Metrics}, true},
		"an operator of nobody's": {&access.Identity{Roles: access.Operator}, false},
	} {
		page := readMetrics(t, m.registry, c.reader)
		if strings.Contains(page, "rival") != c.rival {
			t.Errorf("%s: sees the rival: %v", name, !c.rival)
		}
		if !strings.Contains(page, "idemd_insecure") {
			t.Errorf("%s does not see what is of no tenant", name)
		}
	}
}

func readMetrics(t *testing.T, registry *prometheus.Registry, reader *access.Identity) string {
	t.Helper()
	request := httptest.NewRequestWithContext(context.WithValue(t.Context(), readerKey{}, reader), http.MethodGet, "/metrics", nil)
	response := httptest.NewRecorder()
	metricsPage(registry).ServeHTTP(response, request)
	return response.Body.String()
}

func TestToCountAnAnswerAllocatesNothing(t *testing.T) {
	m := newMetrics(false)
	var command reservation.Command = &reservation.Reserve{Address: at("acme", "n")}
	var outcome reservation.Outcome = &reservation.Owned{}
	if n := testing.AllocsPerRun(1000, func() { m.decided(command, outcome) }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}
