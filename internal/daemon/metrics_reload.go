package daemon

import "github.com/prometheus/client_golang/prometheus"

// reloadMetrics tell which configuration is in force, and that something that was read
// again is not.
type reloadMetrics struct {
	configErrors prometheus.Counter
	errors       *prometheus.CounterVec
	configAt     prometheus.Gauge
	configHash   *prometheus.GaugeVec
}

func newReloadMetrics(registry *prometheus.Registry) reloadMetrics {
	m := reloadMetrics{
		configErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "idemd_config_reload_errors_total", Help: "Times that the configuration was read again and was wrong; the one before stays in force.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "idemd_reload_errors_total", Help: "Times that files were read again and were wrong, by what they hold; what was in force stays so.",
		}, []string{"what"}),
		configAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "idemd_config_last_reload_success_timestamp_seconds", Help: "When the configuration in force was read, in seconds since 1970.",
		}),
		configHash: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "idemd_config_hash", Help: "1 for the configuration in force, by the beginning of its file's SHA-256: daemons that should be alike are.",
		}, []string{"sha256"}),
	}
	for _, what := range []string{configWhat, certificatesWhat, keysWhat} {
		m.errors.WithLabelValues(what)
	}
	registry.MustRegister(m.configErrors, m.errors, m.configAt, m.configHash)
	return m
}

// reloadFailed counts what was read again and was wrong.
func (m *metrics) reloadFailed(what string) {
	m.reloads.errors.WithLabelValues(what).Inc()
	if what == configWhat {
		m.reloads.configErrors.Inc()
	}
}

// configured notes that a configuration is in force from now on.
func (m *metrics) configured(hash string) {
	m.reloads.configHash.Reset()
	m.reloads.configHash.WithLabelValues(hash).Set(1)
	m.reloads.configAt.SetToCurrentTime()
}
