package daemon

import (
	"context"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/pebblestore"
)

// everyMetric are the names of our metrics that a daemon can have.
func everyMetric(t *testing.T) []string {
	t.Helper()
	m := newMetrics(false)
	m.registerStats(func(context.Context) (store.Stats, error) { return store.Stats{}, nil })
	m.registerLoad(func() int { return 0 }, func() int { return 0 })
	m.registerStore(nil, func() bool { return true })
	m.registry.MustRegister(newEmbeddedMetrics(func() pebblestore.Metrics { return pebblestore.Metrics{} }))
	descriptions := make(chan *prometheus.Desc)
	go func() {
		m.registry.Describe(descriptions)
		close(descriptions)
	}()
	named := regexp.MustCompile(`fqName: "(idemd_[a-z_]+)"`)
	var names []string
	for d := range descriptions {
		if name := named.FindStringSubmatch(d.String()); name != nil {
			names = append(names, name[1])
		}
	}
	slices.Sort(names)
	return names
}

func TestOperatorsAreToldOfEveryMetricAndOfNoOther(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("`(idemd_[a-z_]+)[`{]").FindAllStringSubmatch(string(text), -1)
	var told []string
	for _, name := range documented {
		told = append(told, name[1])
	}
	slices.Sort(told)
	told = slices.Compact(told)
	if there := everyMetric(t); !slices.Equal(told, there) {
		t.Errorf("docs/operations.md names\n%q, there are\n%q", told, there)
	}
}
