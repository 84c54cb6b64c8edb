package pgstore

import (
	"strings"
)

// column is one column that holds part of a record.
type column struct {
	name string
	kind string // its SQL type
	// unset is what an unset value is read as; empty where the column is NOT NULL or
	// NULL itself serves.
	unset string
}

// recordColumns lists the columns in the order in which rows are read and written;
// row.go and rows.go keep to it.
func recordColumns() []column {
	return []column{
		{"revision", "bigint", ""},
		{"version", "bigint", ""},
		{"fence", "bigint", ""},
		{"retention", "bigint", ""},
		{"reserved_at", "bigint", ""},
		{"lease_expires_at", "bigint", ""},
		{"lease_cap_at", "bigint", ""},
		{"checkpoint_sequence", "bigint", ""},
		{"finished_at", "bigint", "0"},
		{"expires_at", "bigint", "0"},
		{"retry_at", "bigint", "0"},
		{"unknown_since", "bigint", "0"},
		{"attempt", "integer", ""},
		{"attempts_allowed", "integer", ""},
		{"state", "smallint", ""},
		{"on_lapse", "smallint", ""},
		{"told", "smallint", ""},
		{"took_over", "boolean", ""},
		{"judged", "boolean", ""},
		{"scheme", "text", ""},
		{"digest", "bytea", ""},
		{"token", "bytea", ""},
		{"owner", "text", ""},
		{"policy_version", "text", ""},
		{"spent", "bytea", ""},
		{"checkpoint", "bytea", ""},
		{"result", "bytea", ""},
		{"history", "bytea", ""},
		{"trace", "bytea", ""},
		{"erased_at", "bigint", "0"},
		{"body_expires_at", "bigint", "0"},
	}
}

func keyColumns() []column {
	return []column{{"tenant", "text", ""}, {"namespace", "text", ""}, {"key", "text", ""}}
}

// join writes one text for each column, with commas between.
func join(columns []column, text func(i int, c column) string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = text(i, c)
	}
	return strings.Join(parts, ", ")
}
