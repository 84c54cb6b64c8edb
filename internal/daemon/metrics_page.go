package daemon

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/idemd/idemd/internal/access"
)

// metricsPage shows an identity of some tenants only what is of no tenant, or of those. One
// that may do nothing but read metrics needs no tenants, and without any sees all.
func metricsPage(registry *prometheus.Registry) http.Handler {
	everything := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reader, known := r.Context().Value(readerKey{}).(*access.Identity)
		if !known || reader.AllTenants || (reader.Roles == access.Metrics && len(reader.Tenants) == 0) {
			everything.ServeHTTP(w, r)
			return
		}
		promhttp.HandlerFor(ofTenants(registry, reader.Tenants), promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

func ofTenants(from prometheus.Gatherer, tenants []string) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := from.Gather()
		for _, family := range families {
			family.Metric = slices.DeleteFunc(family.Metric, func(m *dto.Metric) bool {
				return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
					return l.GetName() == "tenant" && !slices.Contains(tenants, l.GetValue())
				})
			})
		}
		families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return len(f.GetMetric()) == 0 })
		return families, err
	})
}
