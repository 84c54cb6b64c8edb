// Command withpostgres runs a command with a PostgreSQL server that lives as long as it
// does. Where its arguments say {dsn}, the command gets the connection string of an
// empty database.
//
// It may import internal/pgtest and the standard library.
package main
