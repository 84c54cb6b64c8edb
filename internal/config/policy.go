package config

import (
	"maps"

	"go.yaml.in/yaml/v4"

	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// policy reads the keys of a policy over what it inherits, and more keys beside them.
func (d *decoder) policy(n *yaml.Node, p *engine.Policy, q *engine.Quotas, more fields) {
	before := *p
	keys := fields{
		"lease":                d.duration(&p.Lease),
		"max_lease":            d.duration(&p.MaxLease),
		"lease_cap":            d.duration(&p.LeaseCap),
		"retention":            d.duration(&p.Retention),
		"max_retention":        d.duration(&p.MaxRetention),
		"result_retention":     d.duration(&p.ResultRetention),
		"store_bodies":         d.not(&p.OmitBodies),
		"on_lapse":             d.onLapse(&p.OnLapse),
		"allow_rerun":          d.not(&p.NoRerun),
		"attempts":             integer(d, &p.Attempts, 1, reservation.MaxAttempts),
		"max_body_bytes":       size(d, &p.MaxBodyBytes, reservation.MaxBodyBytes),
		"max_checkpoint_bytes": size(d, &p.MaxCheckpointBytes, reservation.MaxCheckpointBytes),
		"settle":               d.duration(&p.Settle),
		"quotas":               func(n *yaml.Node) { d.quotas(n, q) },
	}
	maps.Copy(keys, more)
	wrong := len(d.problems)
	d.mapping(n, keys)
	if *p != before && len(d.problems) == wrong {
		d.check(n, p.Validate())
	}
}

func (d *decoder) onLapse(to *reservation.LapsePolicy) reading {
	return func(n *yaml.Node) {
		word := ""
		switch d.oneOf(&word, "hold", "rerun")(n); word {
		case "hold":
			*to = reservation.Hold
		case "rerun":
			*to = reservation.Rerun
		}
	}
}

func (d *decoder) quotas(n *yaml.Node, q *engine.Quotas) {
	wrong := len(d.problems)
	d.mapping(n, fields{
		"rate":         d.rate(&q.Rate),
		"burst":        integer(d, &q.Burst, 1, engine.MaxRate),
		"live":         d.limit(&q.Live, engine.MaxLive),
		"stored_bytes": d.sizeLimit(&q.StoredBytes, engine.MaxStoredBytes),
	})
	if q.Rate == 0 {
		// Nothing to burst over, be it by inheritance.
		q.Burst = 0
	}
	if len(d.problems) == wrong {
		d.check(n, q.Validate())
	}
}
