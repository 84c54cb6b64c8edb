package pgstore

import "fmt"

// statements are the texts of everything that is asked of the database. They are
// fixed for the life of a store, so that each is prepared once a connection.
type statements struct {
	begin, settings string
	hold, clock     string
	read, changed   string
	insert, update  string
	demandRecent    string

	plainReserve, plainComplete   string
	tracedReserve, ageingComplete string
	demandPlain                   string

	holdAudit, auditedInsert, auditedUpdate string
}

// newStatements writes the statements. What all of those on the hot path have in
// common: the database has no choice of a plan, whatever it believes about the size
// of the table, because statistics are wrong on a table that grows fast. Rows are
// looked up one by one, by the full key, in the order of an array.
func newStatements() statements {
	return statements{
		begin: "BEGIN ISOLATION LEVEL READ COMMITTED",
		// All for this transaction only, whatever the session, the role or the
		// database say:
		//
		//   - law 1: the answer to COMMIT means that it is on disk;
		//   - no wait for a rival lasts long;
		//   - a daemon that stalls within a transaction does not hold its rows for ever;
		//   - statements are planned once, and never as a scan of the table;
		//   - nor compiled: where a plan is thought to cost much, as one that scans a table of
		//     one row is where scans are off, that takes half a second.
		settings: `SELECT set_config('synchronous_commit', 'on', true), set_config('lock_timeout', $1, true),
       set_config('idle_in_transaction_session_timeout', $2, true), set_config('statement_timeout', $3, true),
       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`,
		hold:         holdStatement(),
		clock:        "SELECT idemd.clock()",
		read:         readStatement(),
		changed:      changedStatement(),
		insert:       insertStatement(),
		update:       updateStatement(),
		demandRecent: "SELECT idemd.demand_recent($1::bigint, $2::bigint)",

		plainReserve:   plainReserveStatement(false),
		tracedReserve:  plainReserveStatement(true),
		plainComplete:  plainCompleteStatement(false),
		ageingComplete: plainCompleteStatement(true),
		demandPlain:    "SELECT idemd.demand_recent(current_setting('idemd.decided_at')::bigint, $1::bigint)",

		holdAudit:     "SELECT last FROM idemd.audit_head FOR UPDATE",
		auditedInsert: auditedStatement(insertStatement()),
		auditedUpdate: auditedStatement(updateStatement()),
	}
}

// holdStatement locks the rows at some addresses that nobody else holds, in the order
// of the array, and reads them. A row that exists but is held by a rival comes as not
// held. Addresses at which nothing lies are left out.
//
// The second look-up is a scalar subquery because, unlike EXISTS, such a one is never
// turned into a hash of the whole table.
func holdStatement() string {
	columns := recordColumns()
	return fmt.Sprintf(`SELECT a.place, r.revision IS NOT NULL AS held, %s
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS a (tenant, namespace, key, place)
LEFT JOIN LATERAL (
    SELECT %s FROM idemd.reservations AS r
    WHERE r.tenant = a.tenant AND r.namespace = a.namespace AND r.key = a.key
    FOR UPDATE SKIP LOCKED
) AS r ON true
WHERE r.revision IS NOT NULL OR (
    SELECT true FROM idemd.reservations AS e
    WHERE e.tenant = a.tenant AND e.namespace = a.namespace AND e.key = a.key
)`, join(columns, selected), join(columns, named))
}

// readStatement reads the rows at some addresses as they were last committed. A rival's
// commit is seen only after it is on disk: PostgreSQL shows a transaction to others
// after its flush, and every writer here asks for one.
func readStatement() string {
	columns := recordColumns()
	return fmt.Sprintf(`SELECT a.place, true AS held, %s
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS a (tenant, namespace, key, place)
CROSS JOIN LATERAL (
    SELECT %s FROM idemd.reservations AS r
    WHERE r.tenant = a.tenant AND r.namespace = a.namespace AND r.key = a.key
    LIMIT 1
) AS r`, join(columns, selected), join(columns, named))
}

// changedStatement reads the rows at some addresses, and that there is none, unless they
// are as they were last seen. A row that was written since lies elsewhere: that it lies
// where it was, with its key and version, is found out without going by an index, at a
// third of the cost of a look-up (measured: 1.2 µs of the database instead of 4 a row).
func changedStatement() string {
	columns := recordColumns()
	return fmt.Sprintf(`SELECT a.number, r.revision IS NOT NULL AS exists, r.place, %s
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::tid[]) WITH ORDINALITY AS a (tenant, namespace, key, version, place, number)
LEFT JOIN LATERAL (
    SELECT r.ctid AS place, %s FROM idemd.reservations AS r
    WHERE r.tenant = a.tenant AND r.namespace = a.namespace AND r.key = a.key
    LIMIT 1
) AS r ON true
WHERE NOT COALESCE((
    SELECT true FROM idemd.reservations AS s
    WHERE s.ctid = a.place AND s.version = a.version AND s.tenant = a.tenant AND s.namespace = a.namespace AND s.key = a.key
), false)
ORDER BY a.number`, join(columns, selected), join(columns, named))
}

// insertStatement writes rows where there are none. It answers with those it wrote: at
// the others a rival was first. It waits for a rival that is just inserting the same
// key; all go in the order of the keys, so that no two wait for each other.
func insertStatement() string {
	return writeStatement() + `
ON CONFLICT (tenant, namespace, key) DO NOTHING
RETURNING tenant, namespace, key`
}

// updateStatement writes rows that are held. It is an upsert because an upsert has no
// plan to go wrong: it looks each row up by its key, where UPDATE … FROM is a join. It
// demands the revision that was read (law 3).
func updateStatement() string {
	return writeStatement() + `
ON CONFLICT (tenant, namespace, key) DO UPDATE SET ` +
		join(recordColumns(), func(_ int, c column) string { return c.name + " = excluded." + c.name }) + `
WHERE reservations.revision = excluded.revision - 1
RETURNING tenant, namespace, key`
}

func writeStatement() string {
	columns := append(keyColumns(), recordColumns()...)
	return fmt.Sprintf(`INSERT INTO idemd.reservations (%s)
SELECT %s
FROM unnest(%s) AS w (%s)`,
		join(columns, named),
		join(columns, written),
		join(columns, func(i int, c column) string { return fmt.Sprintf("$%d::%s[]", i+1, c.kind) }),
		join(columns, named))
}

func named(_ int, c column) string { return c.name }

// selected reads a column, zero where it is unset, and of a row that is not held.
func selected(_ int, c column) string {
	zeros := map[string]string{"bigint": "0", "integer": "0", "smallint": "0::smallint", "boolean": "false", "text": "''"}
	zero, scalar := zeros[c.kind]
	if !scalar {
		return "r." + c.name
	}
	return fmt.Sprintf("COALESCE(r.%s, %s) AS %s", c.name, zero, c.name)
}

func written(_ int, c column) string {
	if c.unset != "" {
		return fmt.Sprintf("NULLIF(w.%s, %s)", c.name, c.unset)
	}
	return "w." + c.name
}
