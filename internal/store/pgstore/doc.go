// Package pgstore keeps reservations in PostgreSQL 15 or newer, for any number of
// daemons on one database. It is the only package of the daemon that knows pgx.
//
// How a batch is applied (see apply.go and transaction.go): one transaction holds
// the existing rows in the order of their addresses, reads the database's clock,
// runs Decide in memory, and writes back what changed, in two round trips. Rows that
// a rival holds are passed over and answered with store.Busy, so that no lock is ever
// waited for but that of a key which a rival is just inserting.
//
// It works through a transaction pooler such as PgBouncer: no session state, no
// LISTEN, no session locks. Where the pooler can't carry prepared statements, add
// default_query_exec_mode=exec to the DSN.
//
// It may import packages store, codec and reservation, pgx and goose.
package pgstore
