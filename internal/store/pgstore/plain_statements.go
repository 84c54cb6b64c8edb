package pgstore

import (
	"fmt"

	"github.com/idemd/idemd/internal/reservation"
)

// plainReserveStatement inserts new records as Decide makes them of a Reserve at an
// address where nothing lies: the columns left out have the defaults that the schema
// gives them. It leaves out what was first tried too long ago or lies ahead; what lies
// at an address already is left alone. It answers with what it inserted and when.
//
// The time is read once, and kept for demandPlain. The columns of traced ones are an array
// more: few callers pay for it.
func plainReserveStatement(traced bool) string {
	column, value, parameter, name := "", "", "", ""
	if traced {
		column, value, parameter, name = ", trace", ", int8send(c.now) || w.trace", ", $16::bytea[]", ", trace"
	}
	return fmt.Sprintf(`WITH c AS MATERIALIZED (SELECT set_config('idemd.decided_at', idemd.clock()::text, true)::bigint AS now)
INSERT INTO idemd.reservations (tenant, namespace, key, version, fence, retention, reserved_at, lease_expires_at, lease_cap_at,
    attempts_allowed, on_lapse, scheme, digest, token, owner, policy_version%s)
SELECT w.tenant, w.namespace, w.key, c.now, c.now, w.retention, c.now, c.now + least(w.lease, w.lease_cap), c.now + w.lease_cap,
    w.attempts, w.on_lapse, w.scheme, w.digest, w.token, w.owner, w.policy_version%s
FROM c, unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::integer[],
    $9::smallint[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::bytea[]%s)
    AS w (tenant, namespace, key, retention, lease, lease_cap, first_tried, attempts, on_lapse, scheme, owner, policy_version, digest, token%s)
WHERE w.first_tried = 0 OR c.now - w.first_tried < w.retention AND w.first_tried <= c.now + $15::bigint
ON CONFLICT (tenant, namespace, key) DO NOTHING
RETURNING tenant, namespace, key, reserved_at`, column, value, parameter, name)
}

// plainCompleteStatement completes attempts under way by their current tokens, as Decide
// does. It holds the rows first, skips those that a rival holds, then reads the clock
// (law 4), and repeats the condition where it writes (law 3). Rows are found by the
// full key, then by the place where they lie: no plan can flip. Where bodies go before
// their records, the sweeper's column is set too; otherwise it is NULL already, for that of
// an earlier result goes with the grant of the attempt.
func plainCompleteStatement(ageing bool) string {
	set, parameter, name, held := "", "", "", ""
	if ageing {
		set = `,
    body_expires_at = CASE WHEN h.body > 0 AND h.body < greatest(r.retention, h.retention) THEN c.now + h.body END`
		parameter, name, held = ", $7::bigint[]", ", body", ", a.body"
	}
	return fmt.Sprintf(`WITH held AS MATERIALIZED (
    SELECT a.place, r.at, a.token, a.result, a.retention%[7]s
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::bigint[]%[5]s)
        WITH ORDINALITY AS a (tenant, namespace, key, token, result, retention%[6]s, place)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS at FROM idemd.reservations AS r
        WHERE r.tenant = a.tenant AND r.namespace = a.namespace AND r.key = a.key AND r.state = %[1]d AND r.token = a.token
        FOR UPDATE SKIP LOCKED
    ) AS r
), c AS MATERIALIZED (SELECT idemd.clock() AS now FROM (SELECT count(*) FROM held) AS h)
UPDATE idemd.reservations AS r
SET state = %[2]d, told = %[3]d, result = h.result, retention = greatest(r.retention, h.retention), finished_at = c.now,
    expires_at = c.now + greatest(r.retention, h.retention), version = r.version + 1, revision = r.revision + 1%[4]s
FROM held AS h, c
WHERE r.ctid = h.at AND r.state = %[1]d AND r.token = h.token
RETURNING h.place, r.version, r.expires_at`, uint8(reservation.Processing), uint8(reservation.Succeeded), uint8(reservation.Completed),
		set, parameter, name, held)
}
